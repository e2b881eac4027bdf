// Child: a zongji fork reads rows from a server.
//
//   node zongji.mjs PACKAGE PORT ROWS WARM_ROWS     (in a folder whose node_modules has the package)
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';

const [name, port, limit, first] = process.argv.slice(2);
const wanted = Number(limit);
const warm = Number(first);
const require = createRequire(join(process.cwd(), 'package.json'));
const { default: ZongJi } = await import(pathToFileURL(require.resolve(name)).href);

const say = (at, rows) =>
  process.stdout.write(JSON.stringify({ at, ns: Number(process.hrtime.bigint()), rows }) + '\n');

let rows = 0;
const zongji = new ZongJi({ host: '127.0.0.1', port: Number(port), user: 'root', password: '' });
zongji.on('error', (error) => {
  process.stderr.write(`${error}\n`);
  process.exit(1);
});
zongji.on('binlog', (event) => {
  if (event.rows === undefined || rows >= wanted) return;
  const before = rows;
  rows += event.rows.length;
  if (before < warm && rows >= warm) say('mark', rows);
  if (rows >= wanted) {
    say('end', rows);
    zongji.connection.pause?.();
  }
});
process.stdin.on('data', () => {}).on('end', () => process.exit(0));
say('ready', 0);
zongji.start({
  serverId: 4000003,
  filename: 'mysql-bin.000001',
  position: 4,
  includeEvents: ['rotate', 'tablemap', 'writerows', 'updaterows', 'deleterows'],
});
