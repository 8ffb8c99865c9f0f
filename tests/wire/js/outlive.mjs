// A program that lives through a restart of the broker: the test that runs it tells it when to go on.

import { once } from "node:events";
import { createInterface } from "node:readline";
import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.PEEKLOCK_CONNECTION, {
  retryOptions: { maxRetries: 30, retryDelayInMs: 300 },
});
const sender = client.createSender("plain-001");
const receiver = client.createReceiver("plain-001");
const input = createInterface({ input: process.stdin });

receiver.subscribe(
  {
    processMessage: async (message) => {
      // Said when it is certainly gone: a broker that ends before would rightly bring it back.
      await receiver.completeMessage(message);
      console.log(`got ${message.body}`);
    },
    processError: async (args) => console.error(`${args.errorSource}: ${args.error.message}`),
  },
  { autoCompleteMessages: false },
);

for (const name of ["before", "after"]) {
  await sender.sendMessages({ body: name });
  await once(input, "line");
}
await client.close();
input.close();
