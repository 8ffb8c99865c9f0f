// Settlement: the four answers to a message, with everything this client can send along.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
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
  refused,
} from "./bus.mjs";

describe("settlement", SIDE_BY_SIDE, () => {
  it("R-S3: complete removes the message", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages(counted(2));
    const [done, waiting] = await receive(receiver, 2);
    await receiver.completeMessage(done);
    assert.deepEqual(numbers(await peekAll(receiver)), numbers([waiting]));
  });

  it("R-S4: abandon brings it back first, with the properties that were changed", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages([
      { body: "a", applicationProperties: { kept: 1, changed: "old" } },
      { body: "b" },
    ]);
    const message = await receiveOne(receiver);
    await receiver.abandonMessage(message, { changed: "new", added: true });
    const again = await receive(receiver, 2);
    assert.deepEqual(bodies(again), ["a", "b"]);
    assert.equal(again[0].deliveryCount, 1);
    assert.deepEqual(again[0].applicationProperties, { kept: 1, changed: "new", added: true });
    assert.equal(again[1].deliveryCount, 0);
  });

  it("R-S7: ten abandons end in the dead-letter queue", async () => {
    const { sender, receiver, deadLetters } = open();
    await sender.sendMessages({ body: "unwanted" });
    for (let turn = 0; turn < 10; turn += 1) {
      const message = await receiveOne(receiver);
      assert.equal(message.deliveryCount, turn);
      await receiver.abandonMessage(message);
    }
    await assertNothingComes(receiver);
    const dead = await receiveOne(deadLetters);
    assert.equal(dead.body, "unwanted");
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  });

  it("R-S5: dead-letter keeps reason, description and custom properties", async () => {
    const { sender, receiver, deadLetters } = open();
    await sender.sendMessages({ body: "bad", applicationProperties: { kept: 1 } });
    await receiver.deadLetterMessage(await receiveOne(receiver), {
      deadLetterReason: "Broken",
      deadLetterErrorDescription: "It has no wheels",
      custom: "yes",
      DeadLetterReason: "the explicit reason beats this one",
    });
    const dead = await receiveOne(deadLetters);
    assert.equal(dead.deadLetterReason, "Broken");
    assert.equal(dead.deadLetterErrorDescription, "It has no wheels");
    assert.equal(dead.applicationProperties.custom, "yes");
    assert.equal(dead.applicationProperties.kept, 1);
    await deadLetters.completeMessage(dead);
    assert.deepEqual(await peekAll(deadLetters), []);
  });

  it("R-S5: dead-letter needs no reason", async () => {
    const { sender, receiver, deadLetters } = open();
    await sender.sendMessages({ body: "bad" });
    await receiver.deadLetterMessage(await receiveOne(receiver));
    assert.equal((await receiveOne(deadLetters)).body, "bad");
  });

  it("R-S6: defer sets aside, with the properties that were changed", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages({ body: "later" });
    const message = await receiveOne(receiver);
    await receiver.deferMessage(message, { because: "busy" });
    await assertNothingComes(receiver);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    assert.equal(deferred.body, "later");
    assert.deepEqual(deferred.applicationProperties, { because: "busy" });
    assert.equal(deferred.deliveryCount, 1);
    await receiver.completeMessage(deferred);
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("R-S8: a message whose receiver closed is settled by its lock token, in every way", async () => {
    const { queue, sender, receiver, deadLetters } = open();
    await sender.sendMessages(counted(4));
    const [complete, abandon, defer, deadLetter] = await receive(receiver, 4);
    await receiver.close();
    const other = another(queue);
    await other.completeMessage(complete);
    await other.abandonMessage(abandon, { added: 1 });
    await other.deferMessage(defer, { added: 2 });
    await other.deadLetterMessage(deadLetter, {
      deadLetterReason: "r",
      deadLetterErrorDescription: "d",
      added: 3,
    });
    const again = await receiveOne(other);
    assert.deepEqual([again.body, again.deliveryCount, again.applicationProperties.added], [1, 1, 1]);
    const [deferred] = await other.receiveDeferredMessages(defer.sequenceNumber);
    assert.deepEqual([deferred.body, deferred.applicationProperties.added], [2, 2]);
    const dead = await receiveOne(deadLetters);
    assert.deepEqual([dead.body, dead.deadLetterReason, dead.deadLetterErrorDescription], [3, "r", "d"]);
    assert.equal(dead.applicationProperties.added, 3);
  });

  it("R-S8: a token is good once", async () => {
    const { queue, sender, receiver } = open();
    await sender.sendMessages({ body: "x" });
    const message = await receiveOne(receiver);
    const other = another(queue);
    await receiver.close();
    await other.completeMessage(message);
    await refused(other.completeMessage(message), "MessageLockLost");
    await refused(other.renewMessageLock(message), "MessageLockLost");
  });

  it("what the client refuses by itself", async () => {
    const { queue, sender, receiver } = open();
    await sender.sendMessages(counted(2));
    const [peeked] = await receiver.peekMessages(1);
    await assert.rejects(receiver.completeMessage(peeked), /not supported for peeked messages/);
    const message = await receiveOne(receiver);
    await receiver.completeMessage(message);
    await assert.rejects(receiver.completeMessage(message), /already settled/);
    const deleting = another(queue, { receiveMode: "receiveAndDelete" });
    const deleted = await receiveOne(deleting);
    await assert.rejects(deleting.completeMessage(deleted), /receiveAndDelete/);
  });

  it("R-S2: competing receivers get different messages", async () => {
    const { queue, sender, receiver } = open();
    await sender.sendMessages(counted(20));
    const other = another(queue);
    const [mine, yours] = await Promise.all([receive(receiver, 10), receive(other, 10)]);
    assert.equal(new Set(numbers([...mine, ...yours])).size, 20);
    await Promise.all([
      ...mine.map((message) => receiver.completeMessage(message)),
      ...yours.map((message) => other.completeMessage(message)),
    ]);
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("R-S5: abandoned dead letters stay, and cannot be dead-lettered again", async () => {
    const { sender, receiver, deadLetters } = open();
    await sender.sendMessages({ body: "bad" });
    await receiver.deadLetterMessage(await receiveOne(receiver), { deadLetterReason: "first" });
    for (let turn = 0; turn < 12; turn += 1) {
      const message = await receiveOne(deadLetters);
      assert.equal(message.deliveryCount, 0);
      await deadLetters.abandonMessage(message);
    }
    const dead = await receiveOne(deadLetters);
    await assert.rejects(deadLetters.deadLetterMessage(dead, { deadLetterReason: "second" }));
    const [kept] = await peekAll(deadLetters);
    assert.equal(kept.deadLetterReason, "first");
  });
});
