"""Make the demo's binlog files: weeks of a small shop on a real MySQL 9.7, seeded.

    python -m ray_canal.demo.make_binlogs      # from a checkout; overwrites the bundled files

Every change goes through `Shop.run`, which counts the rows that the server says it changed; the
final state comes from `SELECT *`. Both land in expected.json. Times in the binlog are the shop's
own (SET TIMESTAMP), so each run has the same; the server's uuid and the commit times are not.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from ray_canal.demo import FOLDER, binlog_files
from ray_canal.demo.phrases import CITIES, GOODS, PEOPLE, REMARKS
from ray_canal.demo.truth import KEYS, digest

SEED = 20261001
CUSTOMERS, ITEMS, ORDERS = 240, 90, 420
SIZE_BYTES_MAX = 1_500_000

TABLES = (
    """CREATE TABLE customers (
      id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      email VARCHAR(120) NOT NULL UNIQUE,
      name VARCHAR(80) NOT NULL,
      language CHAR(2) CHARACTER SET ascii NOT NULL,
      city VARCHAR(60), country CHAR(2) CHARACTER SET ascii NOT NULL,
      birthday DATE, newsletter TINYINT(1) NOT NULL DEFAULT 0,
      preferences JSON, created_at DATETIME NOT NULL)""",
    """CREATE TABLE items (
      id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      sku CHAR(9) CHARACTER SET ascii NOT NULL UNIQUE,
      category ENUM('tea','books','kitchen','garden','toys') NOT NULL,
      title VARCHAR(120) NOT NULL, description TEXT,
      price DECIMAL(10,2) NOT NULL, weight_kg DOUBLE, stock INT NOT NULL,
      attributes JSON, listed_in YEAR,
      updated_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
        ON UPDATE CURRENT_TIMESTAMP(3))""",
    """CREATE TABLE orders (
      id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      customer_id INT UNSIGNED NOT NULL,
      status ENUM('placed','paid','shipped','delivered','cancelled') NOT NULL,
      currency CHAR(3) CHARACTER SET ascii NOT NULL,
      total DECIMAL(12,2) NOT NULL,
      options SET('gift','express','fragile') NOT NULL DEFAULT '',
      placed_at DATETIME(3) NOT NULL, shipped_at DATETIME, deliver_after TIME,
      note VARCHAR(200))""",
    """CREATE TABLE order_lines (
      order_id BIGINT UNSIGNED NOT NULL, line_no TINYINT UNSIGNED NOT NULL,
      item_id INT UNSIGNED NOT NULL, quantity SMALLINT NOT NULL,
      unit_price DECIMAL(10,2) NOT NULL, discount_percent DECIMAL(5,2),
      PRIMARY KEY (order_id, line_no))""",
)


class Shop:
    """The shop's work, as transactions on one connection; counts what it changes."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.random = random.Random(SEED)
        self.now = dt.datetime(2026, 10, 1, 8, 0, tzinfo=dt.timezone.utc)
        self.changes = {table: {"INSERT": 0, "UPDATE": 0, "DELETE": 0} for table in KEYS}
        self.transactions = 0
        self.definitions = 0
        self.open_orders: list[int] = []

    def run(self, table: str, sql: str, *values: Any) -> int:
        """One INSERT, UPDATE or DELETE on `table`; returns the last insert id."""
        with self.connection.cursor() as cursor:
            changed = cursor.execute(sql, values)
            self.changes[table][sql.split(maxsplit=1)[0]] += changed
            return int(cursor.lastrowid or 0)

    def define(self, sql: str) -> None:
        """Run a DDL."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
        self.definitions += 1

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction some minutes after the last one; commit it at the end."""
        self.now += dt.timedelta(milliseconds=self.random.randrange(40_000, 2_400_000))
        self.ask(f"SET TIMESTAMP = {self.now.timestamp():.3f}")
        self.ask("BEGIN")
        yield
        self.ask("COMMIT")
        self.transactions += 1

    def moment(self) -> dt.datetime:
        """Return the time of the shop, as MySQL takes it."""
        return self.now.replace(tzinfo=None)

    def register(self) -> None:
        """A new customer."""
        r = self.random
        language = r.choice(list(PEOPLE))
        country, order, given_names, family_names = PEOPLE[language]
        given, family = r.choice(given_names), r.choice(family_names)
        name = order.replace("given", given).replace("family", family)
        number = self.changes["customers"]["INSERT"] + 1
        preferences = {
            "contact": r.choice(["mail", "phone", "none"]),
            "sizes": r.sample([36, 38, 40, 42.5, 44], 2),
            "greeting": {"text": f"{given} 👋", "formal": r.random() < 0.3},
        }
        birthday = dt.date(1945, 1, 1) + dt.timedelta(days=r.randrange(23_000))
        self.run(
            "customers",
            "INSERT INTO customers (email, name, language, city, country, birthday, newsletter, "
            "preferences, created_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            f"kunde{number}@example.{country.lower()}", name, language,
            r.choice(CITIES[language]) if r.random() < 0.95 else None, country,
            birthday if r.random() < 0.8 else None, r.random() < 0.4,
            json.dumps(preferences, ensure_ascii=False) if r.random() < 0.6 else None,
            self.moment(),
        )  # fmt: skip

    def list_item(self) -> None:
        """A new item."""
        r = self.random
        number = self.changes["items"]["INSERT"] + 1
        category, title, description = GOODS[number % len(GOODS)]
        attributes = {"edition": number, "origin": r.choice(["中国", "Deutschland", "مصر", "日本"]),
                      "tags": r.sample(["new", "sale", "★★★", "öko", "手作り"], 2)}  # fmt: skip
        self.run(
            "items",
            "INSERT INTO items (sku, category, title, description, price, weight_kg, stock, "
            "attributes, listed_in) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            f"{category[:3].upper()}-{number:05d}", category,
            title if number <= len(GOODS) else f"{title} №{number}",
            description if r.random() < 0.9 else None,
            Decimal(r.randrange(199, 30_000)) / 100, round(r.uniform(0.05, 9), 3),
            r.randrange(40, 400), json.dumps(attributes, ensure_ascii=False),
            r.randrange(2015, 2027),
        )  # fmt: skip

    def place_order(self) -> None:
        """An order with its lines, the items' stock reduced, all in one transaction."""
        r = self.random
        (customer,) = r.choice(self.ask("SELECT id FROM customers ORDER BY id"))
        items = r.sample(self.ask("SELECT id, price FROM items ORDER BY id"), r.randrange(1, 4))
        with self.transaction():
            order = self.run(
                "orders",
                "INSERT INTO orders (customer_id, status, currency, total, options, placed_at, "
                "deliver_after, note) VALUES (%s, 'placed', %s, 0, %s, %s, %s, %s)",
                customer, r.choice(["EUR", "CNY", "JPY", "EGP"]),
                ",".join(o for o in ("gift", "express", "fragile") if r.random() < 0.2),
                self.moment(),
                dt.timedelta(minutes=15 * r.randrange(28, 80)) if r.random() < 0.3 else None,
                r.choice(REMARKS) if r.random() < 0.3 else None,
            )  # fmt: skip
            total = Decimal(0)
            for line, (item, price) in enumerate(items, 1):
                quantity = r.randrange(1, 5)
                discount = r.choice([None, None, Decimal("5.00"), Decimal("12.50")])
                self.run(
                    "order_lines",
                    "INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s, %s)",
                    order, line, item, quantity, price, discount,
                )  # fmt: skip
                total += quantity * price * (100 - (discount or 0)) / 100
                if line == 1:
                    self.run("items", "UPDATE items SET stock = stock - %s WHERE id = %s",
                             quantity, item)  # fmt: skip
            self.run("orders", "UPDATE orders SET total = %s WHERE id = %s", total, order)
        self.open_orders.append(order)

    def advance_orders(self) -> None:
        """A batch of orders is paid, shipped, delivered or cancelled."""
        chosen = self.random.sample(self.open_orders, min(8, len(self.open_orders)))
        marks = ", ".join(["%s"] * len(chosen))
        with self.transaction():
            self.run(
                "orders",
                f"UPDATE orders SET shipped_at = IF(status = 'paid', %s, shipped_at), "
                f"status = status + 1 WHERE id IN ({marks}) AND status < 5",
                self.moment(), *chosen,
            )  # fmt: skip
        done = self.ask("SELECT id FROM orders WHERE status >= 4")
        self.open_orders = [o for o in self.open_orders if (o,) not in done]

    def cancel_order(self) -> None:
        """An order and its lines are deleted."""
        order = self.open_orders.pop(self.random.randrange(len(self.open_orders)))
        with self.transaction():
            self.run("order_lines", "DELETE FROM order_lines WHERE order_id = %s", order)
            self.run("orders", "DELETE FROM orders WHERE id = %s", order)

    def regret(self) -> None:
        """A transaction that is rolled back: the binlog must know nothing of it."""
        self.ask("BEGIN")
        self.ask("UPDATE items SET price = 0")
        self.ask("ROLLBACK")

    def days(self, orders: int) -> None:
        """Business as usual, until so many more orders were placed."""
        for number in range(1, orders + 1):
            self.place_order()
            if number % 3 == 0:
                self.advance_orders()
            if number % 11 == 0:
                self.cancel_order()
            if number % 5 == 0:
                with self.transaction():
                    self.register()
            if number % 50 == 0:
                self.regret()

    def open_up(self) -> None:
        """Make the tables, and the first rows."""
        self.define("CREATE DATABASE shop CHARACTER SET utf8mb4")
        self.ask("USE shop")
        for table in TABLES:
            self.define(table)
        with self.transaction():
            for _ in range(ITEMS):
                self.list_item()
        while self.changes["customers"]["INSERT"] < CUSTOMERS:
            with self.transaction():
                for _ in range(20):
                    self.register()

    def reform(self) -> None:
        """The DDL in the middle, and what comes with it: every customer gets points."""
        self.define(
            "ALTER TABLE customers ADD COLUMN points INT UNSIGNED NOT NULL DEFAULT 0 AFTER country"
        )
        with self.transaction():
            self.run("customers", "UPDATE customers SET points = 100 + id")
        self.define("ALTER TABLE orders ADD COLUMN voucher VARCHAR(20)")
        with self.transaction():
            self.run("orders", "UPDATE orders SET voucher = CONCAT('DANKE-', id, '-谢谢') "
                               "WHERE status = 'delivered'")  # fmt: skip
        with self.transaction():
            self.run("customers", "DELETE FROM customers WHERE newsletter = 0 AND country = 'GB'")

    def truth(self) -> dict[str, Any]:
        """Return what the server holds now, and what was changed on the way."""
        tables = {}
        for table, changes in self.changes.items():
            with self.connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM {table}")
                columns = [column[0] for column in cursor.description]
                rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
            tables[table] = {
                "rows": len(rows),
                "changes": changes,
                "columns": columns,
                "digest": digest(table, rows, columns),
            }
        return {
            "server": self.ask("SELECT VERSION()")[0][0],
            "seed": SEED,
            "schema": "shop",
            "transactions": self.transactions,
            "definitions": self.definitions,
            "changes": sum(sum(kinds.values()) for kinds in self.changes.values()),
            "tables": tables,
        }


def make(folder: Path, target: Path) -> None:
    """Start a MySQL 9.7 in `folder`, run the shop, put files and truth into `target`."""
    from tests.servers import start

    with start("mysql97", folder) as server:
        server.execute("RESET BINARY LOGS AND GTIDS")
        shop = Shop(server.connect())
        shop.ask("SET time_zone = '+00:00'")
        shop.ask(f"SET TIMESTAMP = {shop.now.timestamp():.3f}")
        shop.open_up()
        shop.days(ORDERS // 3)
        shop.ask("FLUSH BINARY LOGS")
        shop.days(ORDERS // 6)
        shop.reform()
        shop.days(ORDERS // 6)
        shop.ask("FLUSH BINARY LOGS")
        shop.days(ORDERS // 3)
        truth = shop.truth()
        files = server.binlogs()
        shop.connection.close()
        server.stop()  # so that the last file ends as a closed one does
        for old in binlog_files():
            old.unlink()
        for file in files:
            shutil.copyfile(file, target / file.name)
    truth["files"] = {file.name: (target / file.name).stat().st_size for file in files}
    if sum(truth["files"].values()) > SIZE_BYTES_MAX:
        raise SystemExit(f"the files are too big to bundle: {truth['files']}")
    text = json.dumps(truth, ensure_ascii=False, indent=2)
    (target / "expected.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        make(Path(temporary) / "server", FOLDER)
