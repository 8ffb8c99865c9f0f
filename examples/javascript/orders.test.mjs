// A queue of its own for each test, a lock that ends without waiting, and a server that is busy;
// against `peeklock serve --testing`.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";

const TESTING = `${process.env.PEEKLOCK_HTTP ?? "http://localhost:5300"}/$testing`;
let bus;
let client;

async function ask(method, path, body) {
  const answer = await fetch(TESTING + path, { method, body: body && JSON.stringify(body) });
  const said = await answer.json();
  assert.ok(answer.ok, said.error);
  return said;
}

beforeEach(async () => {
  const orders = { Name: "orders", Properties: { LockDuration: "PT30S" } };
  bus = await ask("POST", "/namespaces", { Queues: [orders] });
  // Who is refused waits half a minute unless told otherwise.
  const retryOptions = { retryDelayInMs: 10 };
  client = new ServiceBusClient(bus.connection_string, { retryOptions });
});

afterEach(async () => {
  await client.close();
  await ask("DELETE", `/namespaces/${bus.name}`);
});

test("a lock that ends is noticed", async () => {
  await client.createSender("orders").sendMessages({ body: "tea" });
  const receiver = client.createReceiver("orders");
  const [message] = await receiver.receiveMessages(1);
  await ask("POST", "/clock", { advance: "PT31S" });
  await assert.rejects(receiver.completeMessage(message), { code: "MessageLockLost" });
  const [again] = await receiver.receiveMessages(1);
  assert.equal(again.deliveryCount, 1);
  await receiver.completeMessage(again);
});

test("a busy server is tried again", async () => {
  const fault = { namespace: bus.name, entity: "orders", kind: "server-busy" };
  await ask("POST", "/faults", fault);
  await client.createSender("orders").sendMessages({ body: "tea" });
  const [message] = await client.createReceiver("orders").receiveMessages(1);
  assert.equal(message.body, "tea");
  assert.deepEqual((await ask("GET", "/faults")).faults, []);
});
