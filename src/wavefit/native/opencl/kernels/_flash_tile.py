"""How attention is cut: what a work-group and a lane take of it, and where that lies in local memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

LANES = 16
_PIECE = 16  # elements of a head that are staged together
PAD = 4  # floats after each row in local memory: rows start in different banks, vectors stay aligned
_BLOCK = 128  # columns of values that are staged together


@dataclass(frozen=True)
class Sizes:
    """Of the operation, and what a work-group (``tile`` queries) and a lane (``rows`` queries, ``keys``) take of it.

    ``hold``: the queries stay in local memory; they are staged with each tile of keys otherwise.
    """

    batch: tuple[int, ...]
    queries: int
    length: int  # keys in all
    head: int  # elements of a query and a key
    values: int  # elements of a value
    tile: int
    rows: int
    keys: int
    hold: bool

    @property
    def items(self) -> int:
        return self.tile // self.rows * LANES

    @property
    def tiles(self) -> int:
        return -(-self.queries // self.tile)

    @property
    def span(self) -> int:
        """Keys of a tile."""
        return LANES * self.keys

    @property
    def piece(self) -> int:
        return min(_PIECE, -(-self.head // 4) * 4)

    @property
    def pieces(self) -> int:
        return -(-self.head // self.piece)

    @property
    def row(self) -> int:
        """Floats from one query to the next in local memory."""
        return (self.piece * self.pieces if self.hold else self.piece) + PAD

    @property
    def base(self) -> int:
        """Where in local memory what is not held begins."""
        return self.tile * self.row if self.hold else 0

    @property
    def pitch(self) -> int:
        """Floats from one key's shares to the next."""
        return self.tile + PAD

    @cached_property
    def blocks(self) -> list[list[tuple[int, int]]]:
        """Columns of the values: of each block, where a run of lanes begins, and how many neighbours a lane has."""
        made: list[list[tuple[int, int]]] = [[]]
        start = 0
        while start < self.values:
            left = self.values - start
            wide = 4 if left > 2 * LANES else 2 if left > LANES else 1
            if made[-1] and start + wide * LANES - made[-1][0][0] > _BLOCK:
                made.append([])
            made[-1].append((start, wide))
            start += wide * LANES
        return made

    @property
    def values_at(self) -> int:
        """Where the values are staged: after the shares."""
        return self.base + LANES * self.pitch

    def shares_at(self, lane: str) -> str:
        """A lane's queries' shares, or maxima or sums, of one key."""
        return f"*(__local {self.vector} *)(pool + {self.base} + {lane} * {self.pitch} + ty)"

    @property
    def vector(self) -> str:
        """The type of one number for each of a lane's queries."""
        return "float" if self.rows == 1 else f"float{self.rows}"

    def part(self, vector: str, row: int) -> str:
        return vector if self.rows == 1 else f"{vector}.s{row}"

    @property
    def unroll(self) -> int:
        """Turns of a loop beside each other: few rows are for devices with few registers."""
        return 2 if self.rows > 2 else 1

    @property
    def columns(self) -> int:
        """Of the result, that a lane has for each query."""
        return sum(wide for block in self.blocks for _, wide in block)

    @property
    def local_floats(self) -> int:
        staged = self.span * (self.piece + PAD) + (0 if self.hold else self.tile * self.row)
        widest = max(sum(wide for _, wide in block) for block in self.blocks) * LANES
        return self.base + max(staged, LANES * (self.pitch + widest))
