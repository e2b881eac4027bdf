"""Convert dates and times of row images to the slots of kernels/base/codes.py.

New formats (MySQL 5.6): DATETIME is 40 bits big-endian (sign, year * 13 + month, day, hour, minute,
second) and a big-endian fraction of (digits + 1) // 2 bytes; TIMESTAMP four big-endian bytes of
seconds and the same fraction; TIME three big-endian bytes (sign, unused, hour, minute, second) with
the fraction after it, the whole being one number offset by its sign bit. Old formats are decimal
digits in little-endian integers; MariaDB's old formats with a fraction (5.3) are one big-endian
count of the fraction's units: DATETIME in months and days of 13 and 32, TIME from a zero point of
839 hours; TIMESTAMP has the count of units after its seconds.
"""

from __future__ import annotations

import numpy as np

from ray_canal.kernels.base.codes import IRREGULAR32, IRREGULAR64
from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import load_be
from ray_canal.kernels.rows import wire as w

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_FRACTION_US = np.array([0, 10_000, 100, 1], np.int64)  # by bytes of the fraction
_DAYS_BEFORE = np.array(
    [0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365], np.int64
)  # fmt: skip
_YEAR_MAX = 9999
_UNIT_US = np.array([1_000_000, 100_000, 10_000, 1000, 100, 10, 1], np.int64)  # by digits
_HIRES_DATETIME_BYTES = np.array([5, 6, 6, 7, 7, 7, 8], np.int64)
_HIRES_TIME_BYTES = np.array([3, 4, 4, 5, 5, 5, 6], np.int64)
_HIRES_FRACTION_BYTES = np.array([0, 1, 1, 2, 2, 3, 3], np.int64)
_TIME_ZERO_SECONDS = 3_020_400


def hires_bytes(read: int, digits: int) -> int:
    """Return the bytes of a MariaDB 5.3 value with `digits` (1 … 6) of fraction."""
    if read == w.READ_TIMESTAMP_HIRES:
        return 4 + int(_HIRES_FRACTION_BYTES[digits])
    table = _HIRES_TIME_BYTES if read == w.READ_TIME_HIRES else _HIRES_DATETIME_BYTES
    return int(table[digits])


@without_refcounts
def _is_leap(year):
    return (year & 3) == 0 and (year % 100 != 0 or year % 400 == 0)


@without_refcounts
def is_regular(date):
    """Tell if year << 9 | month << 5 | day is a day of the (proleptic Gregorian) calendar."""
    year, month, day = date >> 9, date >> 5 & 15, date & 31
    if year < 1 or year > _YEAR_MAX or month < 1 or month > 12 or day < 1:
        return False
    if day <= 28:
        return True
    last = _DAYS_BEFORE[month + 1] - _DAYS_BEFORE[month]
    return day <= last or (month == 2 and day == 29 and _is_leap(year))


@without_refcounts
def days_of(date):
    """Return the days since 1970-01-01 of a regular date."""
    year, month, day = date >> 9, date >> 5 & 15, date & 31
    years = year if month > 2 else year - 1  # whose leap days are over
    centuries = years * 5243 >> 19  # a hundredth, exact below 43,000
    leap_days = (years >> 2) - centuries + (centuries >> 2)
    return year * 365 + leap_days + _DAYS_BEFORE[month] + day - 719_528


@without_refcounts
def date_slot(date):
    """Return (DATE slot, True if it is valid)."""
    if is_regular(date):
        return days_of(date), True
    return IRREGULAR32 + date, False


@without_refcounts
def moment_slot(date, hour, minute, second, micros):
    """Return (DATETIME slot, True if it is valid)."""
    if is_regular(date) and hour < 24 and minute < 60 and second < 60 and micros < _SECOND_US:
        seconds = (hour * 60 + minute) * 60 + second
        return days_of(date) * _DAY_US + seconds * _SECOND_US + micros, True
    packed = (date << 17 | hour << 12 | minute << 6 | second) << 20 | micros
    return IRREGULAR64 + packed, False


@without_refcounts
def _fraction(source, at, count):
    return load_be(source, at, count) * _FRACTION_US[count] if count else 0


@without_refcounts
def datetime_new(source, at, fraction_bytes):
    """Return (slot, 1 if valid, 0 if irregular, -1 if no datetime at all)."""
    packed = load_be(source, at, 5) - (1 << 39)
    micros = _fraction(source, at + 5, fraction_bytes)
    if packed < 0 or micros >= _SECOND_US:
        return np.int64(0), -1
    month_number = packed >> 22
    date = (month_number // 13) << 9 | (month_number % 13) << 5 | (packed >> 17 & 31)
    slot, valid = moment_slot(date, packed >> 12 & 31, packed >> 6 & 63, packed & 63, micros)
    return slot, 1 if valid else 0


@without_refcounts
def datetime_old(number):
    """Return (slot, 1) of the number YYYYMMDDhhmmss; (slot, 0) if no calendar has it, (0, -1) if it
    is no date and time at all."""
    if number < 0 or number > 99_999_999_999_999:
        return np.int64(0), -1
    day_part, time_part = number // 1_000_000, number % 1_000_000
    year, month, day = day_part // 10_000, day_part // 100 % 100, day_part % 100
    hour, minute, second = time_part // 10_000, time_part // 100 % 100, time_part % 100
    if month > 15 or day > 31 or hour > 31 or minute > 63 or second > 63:
        return np.int64(0), -1
    slot, valid = moment_slot(year << 9 | month << 5 | day, hour, minute, second, 0)
    return slot, 1 if valid else 0


@without_refcounts
def timestamp_slot(seconds, micros):
    """Return the slot of a second and microseconds, as `datetime_new` does; second 0 is MySQL's
    zero timestamp."""
    if micros >= _SECOND_US:
        return np.int64(0), -1
    if seconds == 0:
        return np.int64(IRREGULAR64), 0
    return seconds * _SECOND_US + micros, 1


@without_refcounts
def timestamp_new(source, at, fraction_bytes):
    """Return (slot, valid) of a TIMESTAMP(n) at `at`: big-endian seconds, then the fraction."""
    return timestamp_slot(load_be(source, at, 4), _fraction(source, at + 4, fraction_bytes))


@without_refcounts
def time_new(source, at, fraction_bytes):
    """Return (microseconds, 1 or -1)."""
    bits = 24 + 8 * fraction_bytes
    number = load_be(source, at, 3 + fraction_bytes) - (1 << (bits - 1))
    magnitude = abs(number)
    whole = magnitude >> (8 * fraction_bytes)
    micros = np.int64(0)
    if fraction_bytes:
        micros = (magnitude & ((1 << (8 * fraction_bytes)) - 1)) * _FRACTION_US[fraction_bytes]
    minute, second = whole >> 6 & 63, whole & 63
    if minute > 59 or second > 59 or micros >= _SECOND_US:
        return np.int64(0), -1
    total = (((whole >> 12 & 1023) * 60 + minute) * 60 + second) * _SECOND_US + micros
    return (-total if number < 0 else total), 1


@without_refcounts
def time_old(number):
    """Return (microseconds, 1 or -1) of ±hhhmmss."""
    magnitude = abs(number)
    minute, second = magnitude // 100 % 100, magnitude % 100
    if minute > 59 or second > 59:
        return np.int64(0), -1
    total = ((magnitude // 10_000 * 60 + minute) * 60 + second) * _SECOND_US
    return (-total if number < 0 else total), 1


@without_refcounts
def hires(source, at, read, digits):
    """Return the slot of a MariaDB 5.3 value with a fraction, as `datetime_new` does."""
    unit = _UNIT_US[digits]
    if read == w.READ_TIMESTAMP_HIRES:
        micros = load_be(source, at + 4, _HIRES_FRACTION_BYTES[digits]) * unit
        return timestamp_slot(load_be(source, at, 4), micros)
    units = _SECOND_US // unit
    if read == w.READ_TIME_HIRES:
        count = load_be(source, at, _HIRES_TIME_BYTES[digits]) - _TIME_ZERO_SECONDS * units
        return count * unit, 1 if abs(count) < _TIME_ZERO_SECONDS * units else -1
    count = load_be(source, at, _HIRES_DATETIME_BYTES[digits])
    micros, seconds = count % units * unit, count // units
    days = seconds // 86_400
    month_number = days >> 5
    if count < 0 or month_number // 13 > _YEAR_MAX:
        return np.int64(0), -1
    date = (month_number // 13) << 9 | (month_number % 13) << 5 | (days & 31)
    slot, valid = moment_slot(date, seconds // 3600 % 24, seconds // 60 % 60, seconds % 60, micros)
    return slot, 1 if valid else 0
