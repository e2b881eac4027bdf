"""Canal's numbers: what an entry is (EntryType) and what a row change or statement is (EventType),
as its EntryProtocol.proto has them. The kernels have those that they write as constants of their
own."""

from __future__ import annotations

BEGIN, ROWDATA, END = 1, 2, 3
"""EntryType: TRANSACTIONBEGIN, ROWDATA, TRANSACTIONEND."""

INSERT, UPDATE, DELETE = 1, 2, 3
CREATE, ALTER, ERASE, QUERY, TRUNCATE, RENAME, CINDEX, DINDEX = 4, 5, 6, 7, 8, 9, 10, 11
"""EventType. ERASE is DROP, QUERY any other statement; CINDEX and DINDEX make and drop an index."""
XACOMMIT, XAROLLBACK = 13, 14
DML = (INSERT, UPDATE, DELETE)
DDL = (CREATE, ALTER, ERASE, TRUNCATE, RENAME, CINDEX, DINDEX)
