// Receiving: batches and drain, handlers, iteration, deletion, and thousands in flight.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  PARTITIONED,
  SIDE_BY_SIDE,
  another,
  assertNothingComes,
  bodies,
  counted,
  numbers,
  open,
  peekAll,
  receive,
  receiveOne,
  sleep,
} from "./bus.mjs";

const IN_FLIGHT = 2_000;

describe("receiving", SIDE_BY_SIDE, () => {
  it("R-S2, R-F4: holds 2,000 messages in flight on one link", async () => {
    const { queue, sender, receiver } = open({ maxAutoLockRenewalDurationInMs: 0 });
    for (let start = 0; start < IN_FLIGHT; start += 500) {
      await sender.sendMessages(counted(IN_FLIGHT).slice(start, start + 500));
    }
    const messages = await receive(receiver, IN_FLIGHT, 60_000);
    // Each batch went to one partition, where there are several: their order is not promised.
    const got = PARTITIONED ? bodies(messages).sort((a, b) => a - b) : bodies(messages);
    assert.deepEqual(got, counted(IN_FLIGHT).map((message) => message.body));
    const other = another(queue);
    await assertNothingComes(other);
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
    assert.deepEqual(await peekAll(other), []);
  });

  it("R-S2: a drain loses nothing, and leaves the link as it was", async () => {
    const { queue, sender, receiver } = open();
    await sender.sendMessages(counted(3));
    const got = await receiver.receiveMessages(10, { maxWaitTimeInMs: 5_000 });
    assert.deepEqual(bodies(got), [0, 1, 2]);
    // The credit left over was drained: what comes now is for whoever asks next.
    await sender.sendMessages(counted(10));
    const other = another(queue);
    got.push(...(await receive(other, 5, 3_000)), ...(await receive(receiver, 5, 3_000)));
    assert.equal(new Set(numbers(got)).size, 13);
    assert.ok(got.every((message) => message.deliveryCount === 0));
  });

  it("R-S2: drains an empty queue within the time it was given", async () => {
    const { sender, receiver } = open();
    for (let turn = 0; turn < 3; turn += 1) {
      const started = Date.now();
      assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 300 }), []);
      // The first one opens the link as well, on a machine that others use.
      assert.ok(Date.now() - started < (turn === 0 ? 10_000 : 5_000));
    }
    await sender.sendMessages({ body: "x" });
    assert.equal((await receiveOne(receiver)).body, "x");
  });

  it("R-S2: drains while messages pour in", async () => {
    const { sender, receiver } = open();
    const sending = (async () => {
      for (const message of counted(200)) {
        await sender.sendMessages(message);
        if (message.body % 20 === 0) await sleep(50);
      }
    })();
    const got = [];
    const deadline = Date.now() + 30_000;
    while (got.length < 200 && Date.now() < deadline) {
      const some = await receiver.receiveMessages(7, { maxWaitTimeInMs: 200 });
      await Promise.all(some.map((message) => receiver.completeMessage(message)));
      got.push(...some);
    }
    await sending;
    assert.deepEqual(bodies(got).toSorted((a, b) => a - b), counted(200).map((m) => m.body));
    assert.ok(got.every((message) => message.deliveryCount === 0));
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("R-S2: an aborted receive does not block the next one", async () => {
    const { queue, sender, receiver } = open();
    const abort = new AbortController();
    const waiting = receiver.receiveMessages(5, {
      maxWaitTimeInMs: 30_000,
      abortSignal: abort.signal,
    });
    setTimeout(() => abort.abort(), 500);
    await assert.rejects(waiting, { name: "AbortError" });
    // The credit of the aborted call is still out; the next call takes it over.
    const next = receive(receiver, 5);
    await sender.sendMessages(counted(7));
    assert.deepEqual(bodies(await next), [0, 1, 2, 3, 4]);
    assert.deepEqual(bodies(await receive(another(queue), 2)), [5, 6]);
  });

  it("R-S2: a subscription completes what its handler took", async () => {
    const { sender, receiver } = open();
    const got = [];
    const errors = [];
    const subscription = receiver.subscribe(
      {
        processMessage: async (message) => void got.push(message.body),
        processError: async (args) => void errors.push(args.error),
      },
      { maxConcurrentCalls: 5 },
    );
    await sender.sendMessages(counted(60));
    await until(() => got.length === 60);
    await sender.sendMessages({ body: "late" });
    await until(() => got.length === 61);
    await until(async () => (await peekAll(receiver)).length === 0);
    await subscription.close();
    assert.deepEqual(errors, []);
    assert.equal(got.at(-1), "late");
  });

  it("R-S4: a subscription abandons what its handler threw on", async () => {
    const { sender, receiver } = open();
    const counts = [];
    const sources = [];
    const subscription = receiver.subscribe({
      processMessage: async (message) => {
        counts.push(message.deliveryCount);
        if (counts.length < 3) throw new Error("not this time");
      },
      processError: async (args) => void sources.push(args.errorSource),
    });
    await sender.sendMessages({ body: "x" });
    await until(() => counts.length === 3);
    await until(async () => (await peekAll(receiver)).length === 0);
    await subscription.close();
    assert.deepEqual(counts, [0, 1, 2]);
    assert.deepEqual(sources, ["processMessageCallback", "processMessageCallback"]);
  });

  it("R-S3: a subscription may leave the settling to its handler", async () => {
    const { sender, receiver, deadLetters } = open();
    await sender.sendMessages(counted(10));
    let seen = 0;
    const subscription = receiver.subscribe(
      {
        processMessage: async (message) => {
          if (message.body % 2 === 0) await receiver.completeMessage(message);
          else await receiver.deadLetterMessage(message);
          seen += 1;
        },
        processError: async () => {},
      },
      // One at a time: this client's AMQP library gives neighbours that are settled in the same
      // moment the outcome of the first of them.
      { autoCompleteMessages: false, maxConcurrentCalls: 1 },
    );
    await until(() => seen === 10);
    await subscription.close();
    const dead = await receive(deadLetters, 5);
    assert.deepEqual(bodies(dead).toSorted(), [1, 3, 5, 7, 9]);
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("R-S2: a subscription that closes gives back what it had not handled", async () => {
    const { queue, sender, receiver } = open();
    const got = [];
    const subscription = receiver.subscribe(
      {
        processMessage: async (message) => void got.push(message.body),
        processError: async () => {},
      },
      { maxConcurrentCalls: 2 },
    );
    await sender.sendMessages(counted(5));
    await until(() => got.length === 5);
    await subscription.close();
    await sender.sendMessages({ body: "after" });
    const message = await receiveOne(another(queue));
    assert.deepEqual([message.body, message.deliveryCount], ["after", 0]);
    assert.equal(got.length, 5);
  });

  it("R-S2: messages are iterated", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages(counted(5));
    const got = [];
    for await (const message of receiver.getMessageIterator()) {
      got.push(message.body);
      await receiver.completeMessage(message);
      if (got.length === 5) break;
    }
    assert.deepEqual(got, [0, 1, 2, 3, 4]);
  });

  it("R-S1: receive-and-delete leaves nothing", async () => {
    const { queue, sender, receiver } = open({ receiveMode: "receiveAndDelete" });
    await sender.sendMessages(counted(30));
    assert.deepEqual(bodies(await receive(receiver, 20)), counted(20).map((m) => m.body));
    assert.equal((await peekAll(receiver)).length, 10);
    assert.equal((await receive(receiver, 10)).length, 10);
    assert.deepEqual(await peekAll(receiver), []);
    await assertNothingComes(another(queue));
  });
});

async function until(condition, withinMs = 20_000) {
  const deadline = Date.now() + withinMs;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, "it did not happen in time");
    await sleep(20);
  }
}
