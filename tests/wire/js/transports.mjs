// Sends, receives and completes over TLS, and prints what came; the queue and the way are the arguments.

import { ServiceBusClient } from "@azure/service-bus";
import WebSocket from "ws";

const [queue, way] = process.argv.slice(2);
const options = way === "wss" ? { webSocketOptions: { webSocket: WebSocket } } : {};
const client = new ServiceBusClient(process.env.PEEKLOCK_CONNECTION, options);
const sender = client.createSender(queue);
const receiver = client.createReceiver(queue);

async function receiveOne() {
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 20_000 });
  await receiver.completeMessage(message);
  return message;
}

await sender.sendMessages({ body: "hello" });
console.log((await receiveOne()).body);
await sender.sendMessages({ body: Buffer.alloc(250_000, 1) });
console.log((await receiveOne()).body.length);
console.log((await receiver.peekMessages(10)).length);
await client.close();
