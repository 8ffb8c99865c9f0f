// Makes entities that forward, at a host without a port, which this client signs as it is; prints what they say.

import { ServiceBusAdministrationClient } from "@azure/service-bus";

const [name, partitioned] = process.argv.slice(2);
const clerk = new ServiceBusAdministrationClient(process.env.PEEKLOCK_CONNECTION, { retryOptions: { maxRetries: 0 } });
const enablePartitioning = partitioned === "true";

await clerk.createQueue(`${name}.end`, { enablePartitioning });
const forward = { forwardTo: `${name}.end`, forwardDeadLetteredMessagesTo: `https://localhost/${name}.end` };
await clerk.createQueue(name, { ...forward, requiresSession: true, enablePartitioning });
await clerk.createTopic(`${name}.t`, { enablePartitioning });
await clerk.createSubscription(`${name}.t`, "s", forward);
// The first queue has sessions.
await clerk.createSubscription(`${name}.t`, "into", { forwardTo: name, forwardDeadLetteredMessagesTo: name });
for (const each of [
  await clerk.getQueue(name),
  await clerk.getSubscription(`${name}.t`, "s"),
  await clerk.getSubscription(`${name}.t`, "into"),
])
  console.log(each.forwardTo, each.forwardDeadLetteredMessagesTo);
await clerk.updateQueue({ ...(await clerk.getQueue(name)), maxDeliveryCount: 3 });
console.log((await clerk.getQueue(name)).maxDeliveryCount);
