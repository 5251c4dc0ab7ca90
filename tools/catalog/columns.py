"""Writes the catalog file: a string table and compressed columns.

Layout, all integers LEB128 varints, all strings length-prefixed UTF-8:

    magic            8 bytes, "KCATAWS2"
    strings          count, then each string; columns refer to strings by index, 0 is ""
    sources          count, then (name, version, what it holds) as strings in place
    regions          count, then (region, zone count, then (zone name, zone id)) as strings in place
    price tables     count, then (region, currency, generated at) as strings in place
    supplements      count, then (type name as string in place, bandwidth in Mbps, count of VPC limits and each of
                                          them, price in every price table in turn): types that only the tables have, in name order
    row count
    columns          count, then each column

A column is its name, a shape (0: one integer per row, 1: a sequence of integers
per row), an encoding, its length in bytes, and its body:

    0 plain          every row's value in turn
    1 dictionary     count of distinct values, the values, then every row's index
    2 runs           count of distinct values, the values, count of runs, then (index, length) of each run

A sequence value is its length followed by its items. The writer uses the
shortest of the three encodings. Rows are ordered by type name, so families are
contiguous and most columns are a few runs: no general compressor is needed.
"""

import collections

MAGIC = b"KCATAWS2"


def varint(value):
    if value < 0:
        raise ValueError(f"{value} is negative")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value):
    encoded = value.encode()
    return varint(len(encoded)) + encoded


class Writer:
    def __init__(self, row_count):
        self.row_count = row_count
        self._strings = {"": 0}
        self._sources = []
        self._regions = []
        self._price_tables = []
        self._supplements = []
        self._columns = []

    def text(self, value):
        return self._strings.setdefault(value, len(self._strings))

    def source(self, name, version, holds):
        self._sources.append(string(name) + string(version) + string(holds))

    def region(self, region, zones):
        self._regions.append(
            string(region) + varint(len(zones)) + b"".join(string(name) + string(zone_id) for name, zone_id in zones)
        )

    def price_table(self, region, currency, generated_at):
        self._price_tables.append(string(region) + string(currency) + string(generated_at))

    def supplement(self, name, bandwidth_mbps, vpc_limits, prices_micros):
        if len(prices_micros) != len(self._price_tables):
            raise ValueError(f"{name} has {len(prices_micros)} prices for {len(self._price_tables)} price tables")
        numbers = [bandwidth_mbps, len(vpc_limits), *vpc_limits, *prices_micros]
        self._supplements.append(string(name) + b"".join(map(varint, numbers)))

    def scalars(self, name, values):
        self._column(name, 0, values, varint)

    def sequences(self, name, values):
        values = [tuple(value) for value in values]
        self._column(name, 1, values, lambda value: varint(len(value)) + b"".join(map(varint, value)))

    def _column(self, name, shape, values, encode):
        if len(values) != self.row_count:
            raise ValueError(f"column {name} has {len(values)} values for {self.row_count} rows")
        counts = collections.Counter(values)
        # Frequent values first, so that their indexes have one byte.
        distinct = sorted(counts, key=lambda value: (-counts[value], value))
        index = {value: position for position, value in enumerate(distinct)}
        dictionary = varint(len(distinct)) + b"".join(map(encode, distinct))
        runs = []
        for value in values:
            if runs and runs[-1][0] == value:
                runs[-1][1] += 1
            else:
                runs.append([value, 1])
        bodies = [
            b"".join(map(encode, values)),
            dictionary + b"".join(varint(index[value]) for value in values),
            dictionary + varint(len(runs)) + b"".join(varint(index[value]) + varint(length) for value, length in runs),
        ]
        encoding = min(range(3), key=lambda candidate: (len(bodies[candidate]), candidate))
        body = bodies[encoding]
        self._columns.append((name, string(name) + bytes([shape, encoding]) + varint(len(body)) + body))

    def column_sizes(self):
        return [(name, len(column)) for name, column in self._columns]

    def finish(self):
        def listed(entries):
            return varint(len(entries)) + b"".join(entries)

        return b"".join(
            [
                MAGIC,
                listed([string(value) for value in self._strings]),
                listed(self._sources),
                listed(self._regions),
                listed(self._price_tables),
                listed(self._supplements),
                varint(self.row_count),
                listed([column for _, column in self._columns]),
            ]
        )
