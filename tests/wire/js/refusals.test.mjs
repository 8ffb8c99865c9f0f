// Refusals: wrong keys, missing rights, missing queues, tokens that ended.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { describe, it } from "node:test";
import {
  SIDE_BY_SIDE,
  makeClient,
  open,
  port,
  receiveOne,
  refused,
  sleep,
  takeQueue,
} from "./bus.mjs";

const NO_RETRY = { retryOptions: { maxRetries: 0 } };
const ENDPOINT = `Endpoint=sb://localhost:${port}`;

function withKey(rule, key) {
  const text = `${ENDPOINT};SharedAccessKeyName=${rule};SharedAccessKey=${key};UseDevelopmentEmulator=true;`;
  return makeClient(text, NO_RETRY);
}

function withSignature(resource, lifetimeS = 3_600) {
  const expiry = Math.floor(Date.now() / 1_000 + lifetimeS);
  const encoded = encodeURIComponent(resource);
  const signature = createHmac("sha256", "SAS_KEY_VALUE")
    .update(`${encoded}\n${expiry}`)
    .digest("base64");
  const token = `SharedAccessSignature sr=${encoded}&sig=${encodeURIComponent(signature)}&se=${expiry}&skn=RootManageSharedAccessKey`;
  return makeClient(
    `${ENDPOINT};SharedAccessSignature=${token};UseDevelopmentEmulator=true;`,
    NO_RETRY,
  );
}

describe("refusals", SIDE_BY_SIDE, () => {
  it("R-T2: a queue that does not exist is not found", async () => {
    const client = makeClient(undefined, NO_RETRY);
    const sent = client.createSender("no-such-queue").sendMessages({ body: "x" });
    const error = await refused(sent, "MessagingEntityNotFound");
    assert.match(error.message, /The messaging entity .* could not be found/);
    const received = client.createReceiver("no-such-queue").receiveMessages(1, { maxWaitTimeInMs: 5_000 });
    await refused(received, "MessagingEntityNotFound");
    await refused(client.createReceiver("no-such-queue").peekMessages(1), "MessagingEntityNotFound");
  });

  it("R-T2: a missing queue is no reason to try again", async () => {
    const started = Date.now();
    await refused(makeClient().createSender("no-such-queue").sendMessages({ body: "x" }), "MessagingEntityNotFound");
    assert.ok(Date.now() - started < 10_000);
  });

  it("R-T2: wrong keys and unknown rules are unauthorized", async () => {
    const queue = takeQueue();
    for (const client of [
      withKey("RootManageSharedAccessKey", "not the key"),
      withKey("NoSuchRule", "SAS_KEY_VALUE"),
      withKey("send-only", "key-that-sends"),
    ]) {
      await refused(client.createSender(queue).sendMessages({ body: "x" }), "UnauthorizedAccess");
      await refused(client.createReceiver(queue).peekMessages(1), "UnauthorizedAccess");
    }
  });

  it("R-T2: a listen-only key receives and does not send", async () => {
    const queue = takeQueue("own-rules");
    await open({ queue }).sender.sendMessages({ body: "x" });
    const client = withKey("listen-only", "key-that-listens");
    const receiver = client.createReceiver(queue);
    await receiver.completeMessage(await receiveOne(receiver));
    const error = await refused(client.createSender(queue).sendMessages({ body: "x" }), "UnauthorizedAccess");
    assert.match(error.message, /'Send' claim/);
    await refused(
      client.createSender(queue).scheduleMessages({ body: "x" }, new Date()),
      "UnauthorizedAccess",
    );
  });

  it("R-T2: a send-only key sends and does not receive", async () => {
    const queue = takeQueue("own-rules");
    const client = withKey("send-only", "second-key-that-sends");
    await client.createSender(queue).sendMessages({ body: "x" });
    const received = client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 5_000 });
    const error = await refused(received, "UnauthorizedAccess");
    assert.match(error.message, /'Listen' claim/);
    await refused(client.createReceiver(queue).peekMessages(1), "UnauthorizedAccess");
  });

  it("R-T1: a ready signature opens a connection without SASL", async () => {
    const queue = takeQueue();
    const client = withSignature(`sb://localhost:${port}/`);
    await client.createSender(queue).sendMessages({ body: "x" });
    const receiver = client.createReceiver(queue);
    const message = await receiveOne(receiver);
    await receiver.completeMessage(message);
    assert.equal(message.body, "x");
  });

  it("R-T2: an expired signature is unauthorized, and says so", async () => {
    const queue = takeQueue();
    const client = withSignature(`sb://localhost:${port}/`, -60);
    const error = await refused(client.createSender(queue).sendMessages({ body: "x" }), "UnauthorizedAccess");
    assert.match(error.message, /ExpiredToken/);
  });

  it("R-T2: a link does not outlive its token", async () => {
    const queue = takeQueue();
    const sender = withSignature(`sb://localhost:${port}/`, 3).createSender(queue);
    await sender.sendMessages({ body: "in time" });
    await sleep(4_500);
    await refused(sender.sendMessages({ body: "too late" }), "UnauthorizedAccess");
  });
});
