// Message sessions: accepted by name or by turn, held, renewed and lost; state and order.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  LOCK_SHORT_MS,
  PARTITIONED,
  SIDE_BY_SIDE,
  assertNothingComes,
  bodies,
  client,
  makeClient,
  connectionString,
  numbers,
  peekAll,
  receive,
  receiveOne,
  refused,
  sleep,
  takeQueue,
} from "./bus.mjs";

// This client renews locks by itself unless it is told not to.
const NOT_RENEWED = { maxAutoLockRenewalDurationInMs: 0 };
const ONCE = { retryOptions: { maxRetries: 0 } };

/** Send messages one by one; the first letter of each is its session. */
async function filled(kind, ...texts) {
  const queue = takeQueue(kind);
  const sender = client.createSender(queue);
  for (const text of texts) await sender.sendMessages({ body: text, sessionId: text[0] });
  return { queue, sender };
}

describe("accepting", SIDE_BY_SIDE, () => {
  it("gives the messages of a named session only, in order", async () => {
    const { queue } = await filled("session", "a1", "b1", "a2");
    const receiver = await client.acceptSession(queue, "a");
    assert.equal(receiver.sessionId, "a");
    const wait = receiver.sessionLockedUntilUtc - Date.now();
    assert.ok(wait > 30_000 && wait <= 61_000, `${wait} ms`);
    const messages = await receive(receiver, 2);
    assert.deepEqual(bodies(messages), ["a1", "a2"]);
    assert.deepEqual(messages.map((message) => message.sessionId), ["a", "a"]);
    for (const message of messages) {
      assert.equal(+message.lockedUntilUtc, +receiver.sessionLockedUntilUtc);
      await receiver.completeMessage(message);
    }
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("gives the session that waits longest to whoever takes the next one", async () => {
    const { queue } = await filled("session", "b1", "a1");
    const first = await client.acceptNextSession(queue);
    const second = await client.acceptNextSession(queue);
    const found = [first.sessionId, second.sessionId];
    // Which partition answers first is nobody's promise.
    assert.deepEqual(PARTITIONED ? found.sort() : found, PARTITIONED ? ["a", "b"] : ["b", "a"]);
  });

  it("holds the attach until there is a session, and refuses it when there is none", async () => {
    const queue = takeQueue("session");
    const impatient = makeClient(connectionString, {
      retryOptions: { maxRetries: 0, timeoutInMs: 4_000 },
    });
    const begin = Date.now();
    await refused(impatient.acceptNextSession(queue), "ServiceTimeout");
    const waited = Date.now() - begin;
    assert.ok(waited > 2_000 && waited < 15_000, `${waited} ms`);
    const waiting = client.acceptNextSession(queue);
    await sleep(1_500);
    await client.createSender(queue).sendMessages({ body: "late", sessionId: "a" });
    assert.equal((await receiveOne(await waiting)).body, "late");
  });

  it("refuses a session that another holds", async () => {
    const { queue } = await filled("session", "a1");
    await client.acceptSession(queue, "a");
    const once = makeClient(connectionString, ONCE);
    await refused(once.acceptSession(queue, "a"), "SessionCannotBeLocked");
    assert.equal((await once.acceptSession(queue, "b")).sessionId, "b");
  });

  it("does not mix sessions and plain receivers", async () => {
    const { queue, sender } = await filled("session", "a1");
    const ordinary = takeQueue();
    const receiver = client.createReceiver(queue);
    const error = await refused(receiver.receiveMessages(1), "GeneralError");
    assert.match(error.message, /non-sessionful/);
    // This client has its own words for every session receiver that is turned away.
    await refused(client.acceptSession(ordinary, "a"), "SessionCannotBeLocked");
    await assert.rejects(sender.sendMessages({ body: "no session" }), /SessionId/);
    // Browsing needs no session.
    assert.deepEqual(bodies(await client.createReceiver(queue).peekMessages(5)), ["a1"]);
  });
});

describe("holding", SIDE_BY_SIDE, () => {
  it("frees the session when its receiver closes, and counts no delivery", async () => {
    const { queue } = await filled("session", "a1", "a2");
    const receiver = await client.acceptSession(queue, "a");
    await receive(receiver, 2);
    await receiver.close();
    const again = await client.acceptSession(queue, "a");
    const messages = await receive(again, 2);
    assert.deepEqual(bodies(messages), ["a1", "a2"]);
    assert.deepEqual(messages.map((message) => message.deliveryCount), [0, 0]);
  });

  it("R-L2: renews a session", async () => {
    const { queue } = await filled("short-lock-session", "a1");
    const receiver = await client.acceptSession(queue, "a", NOT_RENEWED);
    const message = await receiveOne(receiver);
    const before = receiver.sessionLockedUntilUtc;
    for (let turn = 0; turn < 3; turn += 1) {
      await sleep(LOCK_SHORT_MS - 2_000);
      await receiver.renewSessionLock();
    }
    assert.ok(receiver.sessionLockedUntilUtc - before > LOCK_SHORT_MS);
    await receiver.completeMessage(message);
  });

  it("R-L2: the client renews by itself", async () => {
    const { queue } = await filled("short-lock-session", "a1");
    const receiver = await client.acceptSession(queue, "a");
    const message = await receiveOne(receiver);
    await sleep(2.5 * LOCK_SHORT_MS);
    await receiver.completeMessage(message);
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("R-S8: a lost lock ends everything, and the delivery counts", async () => {
    const { queue } = await filled("short-lock-session", "a1");
    const receiver = await client.acceptSession(queue, "a", NOT_RENEWED);
    const message = await receiveOne(receiver);
    await sleep(LOCK_SHORT_MS + 1_000);
    await refused(receiver.completeMessage(message), "SessionLockLost");
    await refused(receiver.getSessionState(), "SessionLockLost");
    await refused(receiver.renewSessionLock(), "SessionLockLost");
    const again = await client.acceptSession(queue, "a");
    assert.equal((await receiveOne(again)).deliveryCount, 1);
  });

  it("who receives and deletes goes on while nobody else wants the session", async () => {
    const { queue, sender } = await filled("short-lock-session", "a1");
    const receiver = await client.acceptSession(queue, "a", { receiveMode: "receiveAndDelete" });
    const got = [];
    const errors = [];
    receiver.subscribe({
      processMessage: async (message) => void got.push(message.body),
      processError: async ({ error }) => void errors.push(error.code),
    });
    await sleep(LOCK_SHORT_MS + 1_000);
    await sender.sendMessages({ body: "a2", sessionId: "a" });
    while (got.length < 2 && !errors.length) await sleep(50);
    assert.deepEqual([got, errors], [["a1", "a2"], []]);
    await client.acceptSession(queue, "a");
    while (!errors.length) await sleep(50);
    assert.deepEqual(errors, ["SessionLockLost"]);
  });

  it("keeps the state of a session", async () => {
    const queue = takeQueue("session");
    const receiver = await client.acceptSession(queue, "a");
    assert.equal(await receiver.getSessionState(), null);
    await receiver.setSessionState({ step: 3 });
    await receiver.close();
    const again = await client.acceptSession(queue, "a");
    assert.deepEqual(await again.getSessionState(), { step: 3 });
    await again.setSessionState(null);
    assert.equal(await again.getSessionState(), null);
  });

  it("peeks one session", async () => {
    const { queue } = await filled("session", "a1", "b1", "a2");
    const receiver = await client.acceptSession(queue, "a");
    assert.deepEqual(bodies(await receiver.peekMessages(1)), ["a1"]);
    assert.deepEqual(bodies(await receiver.peekMessages(5)), ["a2"]);
    assert.deepEqual(await receiver.peekMessages(5), []);
  });
});

describe("setting aside", SIDE_BY_SIDE, () => {
  it("R-S6: deferred messages come back to the holder of the session", async () => {
    const { queue } = await filled("session", "a1", "a2", "b1");
    const receiver = await client.acceptSession(queue, "a");
    const messages = await receive(receiver, 2);
    for (const message of messages) {
      await receiver.deferMessage(message);
    }
    await assertNothingComes(receiver);
    const other = await client.acceptSession(queue, "b");
    await refused(other.receiveDeferredMessages(messages[0].sequenceNumber), "MessageNotFound");
    const wanted = messages.map((message) => message.sequenceNumber);
    const fetched = await receiver.receiveDeferredMessages(wanted);
    assert.deepEqual(bodies(fetched), ["a1", "a2"]);
    assert.deepEqual(numbers(fetched), numbers(messages));
    await receiver.completeMessage(fetched[0]);
    await receiver.abandonMessage(fetched[1]);
    const [again] = await receiver.receiveDeferredMessages(wanted[1]);
    assert.equal(again.deliveryCount, 2);
    await receiver.deadLetterMessage(again);
    assert.deepEqual(await peekAll(receiver), []);
    const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
    assert.equal((await receiveOne(dead)).sessionId, "a");
  });

  it("scheduled messages arrive in their session", async () => {
    const { queue, sender } = await filled("session", "z1");
    const receiver = await client.acceptSession(queue, "a");
    const due = new Date(Date.now() + 3_000);
    const wanted = ["a1", "a2"].map((text) => ({ body: text, sessionId: "a" }));
    const [first] = await sender.scheduleMessages(wanted, due);
    await sender.cancelScheduledMessages(first);
    assert.equal((await receiveOne(receiver)).body, "a2");
    assert.ok(Date.now() >= due.getTime() - 1_000);
  });

  it("five receivers drain many sessions, each in its order", async () => {
    const queue = takeQueue("session");
    const sender = client.createSender(queue);
    const names = Array.from({ length: 10 }, (_, index) => `s${index}`);
    for (let turn = 0; turn < 10; turn += 1) {
      await Promise.all(names.map((name) => sender.sendMessages({ body: turn, sessionId: name })));
    }
    const seen = {};
    const drain = async () => {
      for (let turn = 0; turn < 2; turn += 1) {
        const receiver = await client.acceptNextSession(queue);
        const messages = await receive(receiver, 10);
        for (const message of messages) {
          await receiver.completeMessage(message);
        }
        seen[receiver.sessionId] = bodies(messages);
        await receiver.close();
      }
    };
    await Promise.all(Array.from({ length: 5 }, drain));
    const order = Array.from({ length: 10 }, (_, index) => index);
    assert.deepEqual(seen, Object.fromEntries(names.map((name) => [name, order])));
  });
});
