// Peeking, deferring and scheduling: everything that goes over the management link.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  KEY,
  SIDE_BY_SIDE,
  UNKNOWN,
  assertNoGaps,
  assertNothingComes,
  bodies,
  counted,
  open,
  peekAll,
  receive,
  receiveOne,
  refused,
} from "./bus.mjs";

const SOON_MS = 3_000;

function soon(ms = SOON_MS) {
  return new Date(Math.ceil((Date.now() + ms) / 1_000) * 1_000);
}

describe("peeking", SIDE_BY_SIDE, () => {
  it("R-S2: changes nothing and remembers where it was", async () => {
    const { sender, receiver } = open();
    assert.deepEqual(await receiver.peekMessages(5), []);
    await sender.sendMessages(counted(5));
    const page = await receiver.peekMessages(2);
    assert.deepEqual(bodies(page), [0, 1]);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), [2, 3, 4]);
    assert.deepEqual(await receiver.peekMessages(10), []);
    const again = await receiver.peekMessages(3, { fromSequenceNumber: page[1].sequenceNumber });
    assert.deepEqual(bodies(again), [1, 2, 3]);
    assert.deepEqual((await receive(receiver, 5)).map((m) => m.deliveryCount), [0, 0, 0, 0, 0]);
  });

  it("leaves bodies out where that is wished", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages({ body: "text", applicationProperties: { n: 1 } });
    const [seen] = await receiver.peekMessages(1, { omitMessageBody: true });
    assert.equal(seen.body, undefined);
    assert.deepEqual(seen.applicationProperties, { n: 1 });
    assert.equal((await receiveOne(receiver)).body, "text");
  });

  it("R-S6: sees every state", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages(["deferred", "locked", "active"].map((body) => ({ body, ...KEY })));
    const [deferred] = await receive(receiver, 2);
    await receiver.deferMessage(deferred);
    await sender.scheduleMessages({ body: "scheduled", ...KEY }, soon(3_600_000));
    assert.deepEqual(
      (await peekAll(receiver)).map((message) => [message.body, message.state]),
      [
        ["deferred", "deferred"],
        ["locked", "active"],
        ["active", "active"],
        ["scheduled", "scheduled"],
      ],
    );
    const [again] = await receiver.receiveDeferredMessages(deferred.sequenceNumber);
    assert.equal(again.state, "deferred");
    assert.equal((await peekAll(receiver))[0].state, "deferred");
  });

  it("R-S2: walks through more than one answer can hold", async () => {
    const { sender, receiver } = open();
    const large = Buffer.alloc(100_000, 120);
    for (let turn = 0; turn < 8; turn += 1) await sender.sendMessages({ body: large });
    const found = await peekAll(receiver);
    assert.equal(found.length, 8);
    assertNoGaps(found);
    assert.ok(found.every((message) => message.body.length === 100_000));
  });

  it("R-S2: many questions at once get their own answers", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages(counted(20));
    const stored = await receiver.peekMessages(20);
    const pages = await Promise.all(
      stored.map((message) =>
        receiver.peekMessages(1, { fromSequenceNumber: message.sequenceNumber }),
      ),
    );
    assert.deepEqual(pages.map((page) => page[0].body), counted(20).map((m) => m.body));
  });
});

describe("deferring", SIDE_BY_SIDE, () => {
  it("R-S6: fetches by number, in the order asked for, once", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages(counted(4));
    const messages = await receive(receiver, 4);
    for (const message of messages) await receiver.deferMessage(message);
    const wanted = [messages[3].sequenceNumber, messages[0].sequenceNumber];
    const fetched = await receiver.receiveDeferredMessages(wanted);
    assert.deepEqual(bodies(fetched), [3, 0]);
    await refused(receiver.receiveDeferredMessages(wanted), "MessageNotFound");
    await refused(receiver.receiveDeferredMessages(UNKNOWN), "MessageNotFound");
    await refused(
      receiver.receiveDeferredMessages([messages[1].sequenceNumber, UNKNOWN]),
      "MessageNotFound",
    );
    assert.deepEqual(await receiver.receiveDeferredMessages([]), []);
    assert.equal((await receiver.receiveDeferredMessages(messages[1].sequenceNumber)).length, 1);
  });

  it("R-S6: settles a deferred message in every way", async () => {
    const { sender, receiver, deadLetters } = open();
    await sender.sendMessages({ body: "later" });
    const { sequenceNumber } = await deferOne(receiver);
    const fetch = async () => (await receiver.receiveDeferredMessages(sequenceNumber))[0];

    const locked = await fetch();
    const until = await receiver.renewMessageLock(locked);
    assert.ok(until - Date.now() > 55_000);
    await receiver.abandonMessage(locked, { turn: 1 });
    const abandoned = await fetch();
    assert.deepEqual([abandoned.deliveryCount, abandoned.applicationProperties.turn], [2, 1]);
    await receiver.deferMessage(abandoned, { turn: 2 });
    const deferred = await fetch();
    assert.deepEqual([deferred.deliveryCount, deferred.applicationProperties.turn], [3, 2]);
    await receiver.deadLetterMessage(deferred, {
      deadLetterReason: "Late",
      deadLetterErrorDescription: "Too late",
    });
    await refused(fetch(), "MessageNotFound");
    const dead = await receiveOne(deadLetters);
    assert.deepEqual([dead.deadLetterReason, dead.deadLetterErrorDescription], ["Late", "Too late"]);
  });

  it("R-S1: receives and deletes a deferred message", async () => {
    const { queue, sender, receiver } = open();
    await sender.sendMessages({ body: "later" });
    const { sequenceNumber } = await deferOne(receiver);
    const deleting = open({ queue, receiveMode: "receiveAndDelete" }).receiver;
    assert.deepEqual(bodies(await deleting.receiveDeferredMessages(sequenceNumber)), ["later"]);
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("R-S6: defers in the dead-letter queue too", async () => {
    const { sender, receiver, deadLetters } = open();
    await sender.sendMessages({ body: "bad" });
    await receiver.deadLetterMessage(await receiveOne(receiver));
    const { sequenceNumber } = await deferOne(deadLetters);
    await assertNothingComes(deadLetters);
    const [deferred] = await deadLetters.receiveDeferredMessages(sequenceNumber);
    await deadLetters.completeMessage(deferred);
    assert.deepEqual(await peekAll(deadLetters), []);
  });
});

describe("scheduling", SIDE_BY_SIDE, () => {
  it("R-T1: delivers at the time, not before", async () => {
    const { sender, receiver } = open();
    const due = soon();
    const [number] = await sender.scheduleMessages({ body: "later", messageId: "m" }, due);
    const [peeked] = await receiver.peekMessages(1);
    assert.deepEqual([peeked.state, `${peeked.sequenceNumber}`], ["scheduled", `${number}`]);
    await assertNothingComes(receiver);
    const message = await receiveOne(receiver);
    assert.ok(Date.now() >= due.getTime());
    assert.deepEqual([message.body, message.messageId, message.deliveryCount], ["later", "m", 0]);
    assert.equal(message.scheduledEnqueueTimeUtc.getTime(), due.getTime());
    assert.equal(message.state, "scheduled");
    assert.ok(message.enqueuedTimeUtc >= due && message.enqueuedTimeUtc - due < 5_000);
  });

  it("R-T1: takes several at once, and the annotation of an ordinary send", async () => {
    const { sender, receiver } = open();
    // What is sent now must come before it.
    const due = soon(6_000);
    const scheduled = await sender.scheduleMessages(counted(3), due);
    assert.equal(new Set(scheduled.map(String)).size, 3);
    await sender.sendMessages({ body: "sent", scheduledEnqueueTimeUtc: due });
    await sender.sendMessages({ body: "now" });
    assert.equal((await receiveOne(receiver)).body, "now");
    const rest = await receive(receiver, 4);
    assert.deepEqual(new Set(bodies(rest)), new Set([0, 1, 2, "sent"]));
    assert.deepEqual(rest.map((message) => message.state), Array(4).fill("scheduled"));
    assert.deepEqual(rest.map((message) => +message.scheduledEnqueueTimeUtc), Array(4).fill(+due));
  });

  it("R-T1: takes a time in the past as now", async () => {
    const { sender, receiver } = open();
    await sender.scheduleMessages({ body: "x" }, new Date(Date.now() - 60_000));
    assert.equal((await receiveOne(receiver, 3_000)).body, "x");
  });

  it("R-T1: cancels by number, and says what it does not know", async () => {
    const { sender, receiver } = open();
    const scheduled = await sender.scheduleMessages(counted(3), soon());
    await sender.cancelScheduledMessages([scheduled[0], scheduled[2]]);
    await refused(sender.cancelScheduledMessages(scheduled[0]), "MessageNotFound");
    await refused(sender.cancelScheduledMessages(UNKNOWN), "MessageNotFound");
    assert.equal((await receiveOne(receiver)).body, 1);
    await assertNothingComes(receiver);
  });
});

async function deferOne(receiver) {
  const message = await receiveOne(receiver);
  await receiver.deferMessage(message);
  return message;
}
