// Administration with a token of an issuer in place of a key; the host and the token are the arguments.

import { ServiceBusAdministrationClient } from "@azure/service-bus";

const [host, token] = process.argv.slice(2);
const credential = { getToken: async () => ({ token, expiresOnTimestamp: Date.now() + 3_600_000 }) };
const clerk = new ServiceBusAdministrationClient(host, credential, { retryOptions: { maxRetries: 0 } });

await clerk.createQueue("js.web");
console.log((await clerk.createQueue("js.web.in", { forwardTo: "js.web" })).forwardTo);
for (const name of ["js.web.in", "js.web"]) await clerk.deleteQueue(name);
