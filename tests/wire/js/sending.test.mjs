// Sending and content: what is accepted is stored, and comes back as it was.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  KEY,
  SIDE_BY_SIDE,
  assertNoGaps,
  assertNothingComes,
  bodies,
  counted,
  open,
  peekAll,
  places,
  receive,
  receiveOne,
  refused,
} from "./bus.mjs";

const MESSAGE_SIZE_MAX = 262_144;

describe("sending", SIDE_BY_SIDE, () => {
  it("R-T1: holds a message until it is received", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages({ body: "first", messageId: "m-1" });
    const message = await receiveOne(receiver);
    assert.equal(message.body, "first");
    assert.equal(message.messageId, "m-1");
    assert.deepEqual(places([message]), [1]);
    assert.equal(message.deliveryCount, 0);
    assert.equal(message.state, "active");
    assert.match(message.lockToken, /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/);
    assert.ok(Math.abs(message.enqueuedTimeUtc - Date.now()) < 5_000);
    const left = message.lockedUntilUtc - Date.now();
    assert.ok(left > 57_000 && left <= 60_500, `locked for ${left} ms`);
    await receiver.completeMessage(message);
    assert.deepEqual(await peekAll(receiver), []);
  });

  it("R-T5: stores a list in its order", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages(counted(50));
    const messages = await receive(receiver, 50);
    assert.deepEqual(bodies(messages), counted(50).map((message) => message.body));
    assert.deepEqual(places(messages), Array.from({ length: 50 }, (_, index) => index + 1));
  });

  it("R-T5: keeps what belongs to each message of a batch", async () => {
    const { sender, receiver } = open();
    const batch = await sender.createMessageBatch();
    assert.equal(batch.maxSizeInBytes, MESSAGE_SIZE_MAX);
    assert.ok(batch.tryAddMessage({ body: "a", messageId: "id-a", sessionId: "s-a", subject: "a" }));
    // A partitioned queue takes them together because their keys are the same.
    const other = { body: "b", partitionKey: "s-a", applicationProperties: { of: "b" } };
    assert.ok(batch.tryAddMessage(other));
    await sender.sendMessages(batch);
    const [first, second] = await receive(receiver, 2);
    assert.deepEqual([first.messageId, first.sessionId, first.subject], ["id-a", "s-a", "a"]);
    assert.deepEqual([second.sessionId, second.subject], [undefined, undefined]);
    assert.deepEqual(second.applicationProperties, { of: "b" });
    assert.ok(second.messageId && second.messageId !== "id-a");
  });

  it("R-T5: fills a batch to its limit and sends it whole", async () => {
    const { sender, receiver } = open();
    const batch = await sender.createMessageBatch();
    while (batch.tryAddMessage({ body: Buffer.alloc(5_000, 120) }));
    assert.ok(batch.sizeInBytes > MESSAGE_SIZE_MAX - 6_000);
    await sender.sendMessages(batch);
    assert.equal((await receive(receiver, batch.count)).length, batch.count);
  });

  it("sends nothing for an empty list", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages([]);
    await sender.sendMessages(await sender.createMessageBatch());
    assert.deepEqual(await receiver.peekMessages(1), []);
  });

  it("R-T1: carries 200 KB over as many frames as it takes", async () => {
    const { sender, receiver } = open();
    const content = Buffer.from(Array.from({ length: 200_000 }, (_, index) => (index * 7) % 251));
    await sender.sendMessages({ body: content });
    const message = await receiveOne(receiver);
    assert.ok(content.equals(message.body));
    await receiver.completeMessage(message);
  });

  it("R-T2: refuses a message over the limit, and the sender lives on", async () => {
    const { sender, receiver } = open();
    await refused(
      sender.sendMessages({ body: Buffer.alloc(MESSAGE_SIZE_MAX, 120) }),
      "MessageSizeExceeded",
    );
    await sender.sendMessages({ body: "small" });
    assert.deepEqual(bodies(await receive(receiver, 1)), ["small"]);
    await assertNothingComes(receiver);
  });

  it("R-S9: gives an id to a message without one", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages({ body: "a" });
    await sender.sendMessages({ body: "b" });
    const ids = (await receive(receiver, 2)).map((message) => message.messageId);
    assert.ok(ids.every(Boolean));
    assert.equal(new Set(ids).size, 2);
  });

  it("R-T3: overlaps hundreds of sends on one link", async () => {
    const { sender, receiver } = open();
    await Promise.all(counted(500).map((message) => sender.sendMessages(message)));
    const stored = await peekAll(receiver);
    assert.equal(stored.length, 500);
    assertNoGaps(stored);
    assert.equal(new Set(stored.map((message) => message.messageId)).size, 500);
  });

  it("sends a received message again", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages({ body: { deep: [1] }, applicationProperties: { kind: "x" }, ...KEY });
    const message = await receiveOne(receiver);
    await sender.sendMessages(message);
    await receiver.completeMessage(message);
    const again = await receiveOne(receiver);
    assert.deepEqual(again.body, { deep: [1] });
    assert.deepEqual(again.applicationProperties, { kind: "x" });
    assert.deepEqual([...places([again]), again.deliveryCount], [2, 0]);
  });
});

describe("content", SIDE_BY_SIDE, () => {
  it("R-T1: keeps bodies of every kind", async () => {
    const { sender, receiver } = open();
    const written = [
      { body: "text", bodyType: "data" },
      { body: { map: [1, 2, { deep: null }] }, bodyType: "data" },
      { body: [1, "two", [3]], bodyType: "sequence" },
      { body: "a value", bodyType: "value" },
      { body: 42, bodyType: "value" },
      { body: -7.5, bodyType: "value" },
      { body: true, bodyType: "value" },
      { body: ["list", 1], bodyType: "value" },
      { body: { a: 1 }, bodyType: "value" },
    ];
    const messageAnnotations = { "x-opt-partition-key": "k" };
    for (const message of written) await sender.sendMessages({ ...message, messageAnnotations });
    const messages = await receive(receiver, written.length);
    assert.deepEqual(
      messages.map((message) => ({ body: message.body, bodyType: message._rawAmqpMessage.bodyType })),
      written,
    );
  });

  it("R-T1: keeps every property", async () => {
    const { sender, receiver } = open();
    const written = {
      body: "x",
      applicationProperties: {
        text: "Grüße 🚀",
        small: 7,
        large: 9_007_199_254_740_991,
        negative: -5,
        fraction: 0.25,
        yes: true,
        no: false,
        date: new Date("2024-02-29T12:30:15.250Z"),
        nothing: null,
      },
      contentType: "application/json",
      correlationId: "c",
      messageId: "m",
      partitionKey: "s",
      replyTo: "r",
      replyToSessionId: "rs",
      sessionId: "s",
      subject: "label",
      timeToLive: 7_200_000,
      to: "t",
    };
    await sender.sendMessages(written);
    const message = await receiveOne(receiver);
    const { applicationProperties, ...plain } = written;
    for (const [name, value] of Object.entries(plain)) assert.equal(message[name], value, name);
    assert.deepEqual(message.applicationProperties, {
      ...applicationProperties,
      date: applicationProperties.date.getTime(),
    });
    assert.equal(message.expiresAtUtc - message.enqueuedTimeUtc, 7_200_000);
  });

  it("R-T1: keeps the sections that only the annotated message shows", async () => {
    const { sender, receiver } = open();
    await sender.sendMessages({
      body: "x",
      bodyType: "data",
      header: { durable: true, priority: 7, firstAcquirer: false },
      footer: { checksum: "abc" },
      messageAnnotations: { "x-opt-mine": "kept" },
      deliveryAnnotations: { "x-opt-hop": "kept too" },
      properties: { messageId: 77, groupSequence: 5, contentEncoding: "gzip" },
    });
    const raw = (await receiveOne(receiver))._rawAmqpMessage;
    assert.deepEqual([raw.header.durable, raw.header.priority], [true, 7]);
    assert.deepEqual(raw.footer, { checksum: "abc" });
    assert.equal(raw.messageAnnotations["x-opt-mine"], "kept");
    assert.equal(Number(raw.messageAnnotations["x-opt-sequence-number"]) % 2 ** 48, 1);
    assert.equal(raw.deliveryAnnotations["x-opt-hop"], "kept too");
    assert.equal(raw.properties.messageId, 77);
    assert.equal(raw.properties.groupSequence, 5);
    assert.equal(raw.properties.contentEncoding, "gzip");
  });
});
