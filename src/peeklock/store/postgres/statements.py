"""What a store asks its database; each is one statement, prepared once and answered in binary."""

from __future__ import annotations

from typing import Final

APPEND: Final = "select * from peeklock.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
OPEN: Final = "select * from peeklock.open($1, $2)"
TRIM: Final = "select peeklock.trim($1, $2, $3, $4, $5)"
DROP: Final = "select peeklock.drop($1)"
DROPPED: Final = "select number from peeklock.dropped"

FIND: Final = """
select number, epoch, replay_from, end_position, journal_first, journal_bytes
from peeklock.partitions where name = $1
"""

# Some chunks from the one that holds a position on, as they are at one moment: up to so many, and
# up to so many bytes, but at least one.
PAGE: Final = """
select p.epoch, p.journal_first, p.end_position as partition_end,
    c.first_position, c.end_position, c.data
from peeklock.partitions p left join lateral (
    select first_position, end_position, data from (
        select k.first_position, k.end_position, k.data,
            sum(octet_length(k.data)) over (order by k.first_position) as total,
            row_number() over (order by k.first_position) as place
        from (
            select first_position, end_position, data from peeklock.chunks
            where number = p.number and first_position >= coalesce((
                select max(first_position) from peeklock.chunks
                where number = p.number and first_position <= greatest($2, p.journal_first)), 0)
            order by first_position limit $4
        ) k where k.end_position > greatest($2, p.journal_first)
    ) k where place = 1 or total <= $3
) c on true
where p.number = $1 order by c.first_position
"""

# The same for a replay, which begins at a position that the journal may have left behind.
REPLAY: Final = PAGE.replace("greatest($2, p.journal_first)", "$2::bigint")

# The chunks that hold these positions, each once; up to so many bytes, but at least one. The others
# are named without their bytes.
BODIES: Final = """
select number, first_position, end_position,
    case when total - size < $3 then data end as data
from (
    select c.number, c.first_position, c.end_position, c.data, octet_length(c.data) as size,
        sum(octet_length(c.data)) over (order by c.number, c.first_position) as total
    from (
        select distinct w.number, (
            select max(k.first_position) from peeklock.chunks k
            where k.number = w.number and k.first_position <= w.position) as first_position
        from unnest($1::integer[], $2::bigint[]) as w (number, position)
    ) f join peeklock.chunks c using (number, first_position)
) s
"""

# What a trim decides by: chunks of the journal, and of what lies below it from where the last trim
# came to.
SHELF: Final = """
(select first_position, end_position, written_at, octet_length(data) as size from peeklock.chunks
    where number = $1 and first_position >= $2 and first_position < $3
    order by first_position limit $4)
union all
(select first_position, end_position, written_at, octet_length(data) from peeklock.chunks
    where number = $1 and first_position >= $3 order by first_position limit $4)
"""
JOURNAL: Final = """
select epoch, replay_from, journal_first, journal_bytes from peeklock.partitions where number = $1
"""
JOURNALS: Final = """
select count(*) as partitions, coalesce(sum(journal_bytes), 0)::bigint as total
from peeklock.partitions
"""

# A slice of what a dropped partition left; the last one takes its number away, too.
SWEEP: Final = """
with slice as (
    delete from peeklock.chunks where number = $1 and first_position in (
        select first_position from peeklock.chunks where number = $1
        order by first_position limit $2)
    returning 1
), ended as (
    delete from peeklock.dropped where number = $1 and (select count(*) from slice) < $2
)
select count(*) from slice
"""
