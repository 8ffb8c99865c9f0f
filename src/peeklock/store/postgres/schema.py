"""What a store is inside of a database, and how it came to be so, step by step.

A step that was released is never changed; another one is added. Everything that writes is a
function of the database, so that a commit is one statement: no transaction spans a round trip, and
whoever is stopped in the middle of anything holds no lock.

    store        one row: its name, whose it is, its history (which database, which timeline),
                 the highest epoch of all partitions that are gone
    partitions   one row each, with its epoch; a number is given once
    dropped      the numbers of partitions that are gone and still have chunks
    chunks       (number, first position) -> a chunk
    catalog      descriptions; used in the first database only
"""

from __future__ import annotations

from typing import Final

# Chunks are stored as they are: their bodies are whatever clients send, and a commit waits for it.
# The row of a partition is written with each of its commits, and finds room on its own page.
_FIRST: Final = """
create schema if not exists peeklock;

create table peeklock.store (
    is_only boolean primary key default true check (is_only),
    name text not null,
    catalog_id uuid not null,
    system_id bigint not null,
    timeline bigint not null,
    epoch_spent bigint not null default 0
);

create table peeklock.partitions (
    number integer primary key generated always as identity,
    name text not null unique,
    epoch bigint not null,
    replay_from bigint not null default 0,
    end_position bigint not null default 0,
    journal_first bigint not null default 0,
    journal_bytes bigint not null default 0
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

create table peeklock.dropped (number integer primary key);

create table peeklock.chunks (
    number integer not null,
    first_position bigint not null,
    end_position bigint not null,
    written_at bigint not null,
    data bytea not null,
    primary key (number, first_position)
) with (
    autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_scale_factor = 0.1
);
alter table peeklock.chunks alter column data set storage external;

create table peeklock.catalog (
    namespace_key text not null,
    kind text not null,
    path_key text not null,
    namespace text not null,
    path text not null,
    description text not null,
    primary key (namespace_key, kind, path_key)
);

create function peeklock.append(
    numbers integer[], epochs bigint[], firsts bigint[], ends bigint[], replays bigint[],
    sizes bigint[], chunk_numbers integer[], chunk_firsts bigint[], chunk_ends bigint[],
    chunk_instants bigint[], chunks bytea[]
) returns table (number integer, epoch bigint, end_position bigint)
language plpgsql as $$
declare
    refused integer[] := '{}';
begin
    for i in 1 .. cardinality(numbers) loop
        update peeklock.partitions p set
            end_position = ends[i],
            replay_from = coalesce(
                replays[i], case when p.end_position = 0 then firsts[i] else p.replay_from end),
            journal_first = case when p.end_position = 0 then firsts[i] else p.journal_first end,
            journal_bytes = p.journal_bytes + sizes[i]
        where p.number = numbers[i] and p.epoch = epochs[i]
            and (p.end_position = firsts[i] or p.end_position = 0);
        if not found then
            refused := refused || numbers[i];
            return query
                select numbers[i], coalesce(max(p.epoch), 0), coalesce(max(p.end_position), 0)
                from peeklock.partitions p where p.number = numbers[i];
        end if;
    end loop;
    insert into peeklock.chunks (number, first_position, end_position, written_at, data)
        select * from unnest(chunk_numbers, chunk_firsts, chunk_ends, chunk_instants, chunks)
            as c (number, first_position, end_position, written_at, data)
        where refused = '{}' or c.number <> all (refused);
end $$;

create function peeklock.open(names text[], asked_epochs bigint[])
returns table (
    name text, number integer, epoch bigint, replay_from bigint, end_position bigint,
    journal_first bigint, journal_bytes bigint, is_refused boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    one record;
    spent bigint;
begin
    for one in
        select a.name, a.epoch, p.number
        from unnest(names, asked_epochs) as a (name, epoch)
        left join peeklock.partitions p on p.name = a.name
        order by p.number nulls last, a.name
    loop
        -- One that nobody opened before goes on behind all that are gone.
        if one.number is null then
            select s.epoch_spent into spent from peeklock.store s for share;
            if one.epoch is null or one.epoch > spent then
                insert into peeklock.partitions as p (name, epoch)
                    values (one.name, coalesce(one.epoch, spent + 1))
                    on conflict do nothing;
                return query
                    select p.name, p.number, p.epoch, p.replay_from, p.end_position,
                        p.journal_first, p.journal_bytes, not found
                    from peeklock.partitions p where p.name = one.name;
            else
                return query select one.name, 0, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
                    0::bigint, true;
            end if;
        else
            return query
                update peeklock.partitions p set epoch = coalesce(one.epoch, p.epoch + 1)
                where p.number = one.number and (one.epoch is null or one.epoch >= p.epoch)
                returning p.name, p.number, p.epoch, p.replay_from, p.end_position,
                    p.journal_first, p.journal_bytes, false;
            if not found then
                return query
                    select one.name, one.number, coalesce(max(p.epoch), 0), 0::bigint, 0::bigint,
                        0::bigint, 0::bigint, true
                    from peeklock.partitions p where p.number = one.number;
            end if;
        end if;
    end loop;
end $$;

create function peeklock.trim(
    trimmed integer, owner_epoch bigint, first bigint, freed bigint, firsts bigint[]
) returns boolean language plpgsql as $$
begin
    update peeklock.partitions p set journal_first = first, journal_bytes = journal_bytes - freed
        where p.number = trimmed and p.epoch = owner_epoch;
    if not found then
        return false;
    end if;
    delete from peeklock.chunks c where c.number = trimmed and c.first_position = any (firsts);
    return true;
end $$;

create function peeklock.drop(dropped_name text) returns integer language plpgsql as $$
declare
    gone peeklock.partitions;
begin
    delete from peeklock.partitions p where p.name = dropped_name returning p.* into gone;
    if not found then
        return null;
    end if;
    update peeklock.store set epoch_spent = greatest(epoch_spent, gone.epoch);
    insert into peeklock.dropped (number) values (gone.number);
    return gone.number;
end $$;
"""

STEPS: Final = (_FIRST,)
"""What makes each version of the version before it; version 0 is an empty database."""

# A number that nobody else uses, we hope: two who make a schema at once do it one after the other.
_LOCK: Final = 0x7065656B


def migration(version: int) -> str:
    """All that is missing behind a version, as one text: what is sent at once is all or nothing."""
    steps = "".join(STEPS[version:])
    return f"""
select pg_advisory_xact_lock({_LOCK});
{steps}
create table if not exists peeklock.version (version integer not null);
delete from peeklock.version;
insert into peeklock.version (version) values ({len(STEPS)});
"""
