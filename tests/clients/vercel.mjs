// One conversation through the Vercel AI SDK, told as a JSON object on standard output.
// Argument: a JSON object {baseURL, headers, api, model, stream, turns, structured, hosted, image, leave, options}.
// An error of the API is told as {"error": {status, message, retryAfter}}.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.CLIENTS_NODE}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { generateText, streamText, stepCountIs, tool, Output } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { z } = await load("zod");

const asked = JSON.parse(process.argv[2]);
const provider = createOpenAI({ baseURL: asked.baseURL, apiKey: "sk-test", headers: asked.headers });
const model = asked.api === "chat" ? provider.chat(asked.model) : provider(asked.model);
const get_weather = tool({
  description: "Return the weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});
const shared = {
  model,
  system: "Be brief.",
  maxRetries: 0,
  stopWhen: stepCountIs(4),
  providerOptions: { openai: asked.options ?? {} },
  ...(asked.structured
    ? { output: Output.object({ schema: z.object({ city: z.string(), degrees: z.number() }) }) }
    : { tools: { get_weather, ...(asked.hosted ? { web_search: provider.tools.webSearch({}) } : {}) } }),
};

process.on("uncaughtException", refused);
process.on("unhandledRejection", refused);

function refused(error) {
  if (!error.statusCode) throw error;
  const retryAfter = error.responseHeaders?.["retry-after"];
  console.log(JSON.stringify({ error: { status: error.statusCode, message: error.message, retryAfter } }));
  process.exit(0);
}

function content(said) {
  const image = "iVBORw0KGgo=";
  return asked.image ? [{ type: "text", text: said }, { type: "image", image, mediaType: "image/png" }] : said;
}

const messages = [];
const told = { texts: [], errors: [], steps: [], output: null, tokens: 0 };
for (const said of asked.turns) {
  messages.push({ role: "user", content: content(said) });
  let result;
  if (asked.stream) {
    const leaving = new AbortController();
    result = streamText({ ...shared, messages, abortSignal: leaving.signal, onError: () => {} });
    let text = "";
    for await (const part of result.fullStream) {
      if (part.type === "error") told.errors.push(part.error?.message ?? String(part.error?.error?.message));
      if (part.type === "error" && part.error?.statusCode) refused(part.error);
      if (part.type === "text-delta") text += part.text;
      if (asked.leave && part.type === "start-step") leaving.abort();
    }
    if (asked.leave || told.errors.length) break;
    if (!text.endsWith(await result.text)) throw new Error(`deltas ${text}, text ${await result.text}`);
  } else {
    result = await generateText({ ...shared, messages });
  }
  messages.push(...(await result.response).messages);
  told.texts.push(await result.text);
  told.steps.push((await result.steps).length);
  told.tokens = (await result.totalUsage).totalTokens;
  if (asked.structured) told.output = await result.output;
}
console.log(JSON.stringify(told));
