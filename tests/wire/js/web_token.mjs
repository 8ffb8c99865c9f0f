// A token of an issuer in place of a key, by HTTPS and by AMQP inside TLS; the host and the token are the arguments.

import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

const [host, token] = process.argv.slice(2);
const credential = { getToken: async () => ({ token, expiresOnTimestamp: Date.now() + 3_600_000 }) };
const clerk = new ServiceBusAdministrationClient(host, credential, { retryOptions: { maxRetries: 0 } });

await clerk.createQueue("js.web");
console.log((await clerk.createQueue("js.web.in", { forwardTo: "js.web" })).forwardTo);
const client = new ServiceBusClient(host, credential, { retryOptions: { maxRetries: 0 } });
await client.createSender("js.web.in").sendMessages({ body: "by token" });
const receiver = client.createReceiver("js.web");
const [got] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 20_000 });
await receiver.completeMessage(got);
console.log(got.body);
await client.close();
for (const name of ["js.web.in", "js.web"]) await clerk.deleteQueue(name);
