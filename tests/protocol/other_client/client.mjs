// A client of recalld written from protocol/README.md alone, in another language: what it must be able to do, it does
// here, with zeromq.js and @msgpack/msgpack and nothing of recalld's. `node client.mjs SOCKET-PATH VECTORS-DIRECTORY`
// prints one JSON object: what came of a session, and which test vectors it read or refused otherwise than they say.
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Decoder, encode } from "@msgpack/msgpack"
import { Dealer } from "zeromq"

const [path, vectors] = process.argv.slice(2)
const PATIENCE = 30_000 // milliseconds
const decoder = new Decoder({ maxStrLength: 1 << 20, maxArrayLength: 65_536, maxMapLength: 65_536, maxExtLength: 0 })

// ---------------------------------------------------------------- a session, as in the worked example

async function session() {
  const socket = new Dealer({ linger: 0 })
  socket.connect(`ipc://${path}`)
  const name = "node-1"
  let counter = 0
  const say = async (kind, fields = {}) => {
    const id = ++counter
    await socket.send(encode({ kind, session: name, id, ...fields }))
    return id
  }
  const held = new Map() // recall -> inject: the buffer that a boundary looks into
  const settled = []
  const answers = new Map()
  const reading = (async () => {
    for await (const parts of socket) {
      if (parts.length !== 1) continue
      const message = decoder.decode(parts[0])
      if (message.kind === "inject") held.set(message.recall, message)
      else if (message.kind === "settled") settled.push(message)
      else if (message.re) answers.set(message.re, message)
    }
  })()
  const until = async (what, look) => {
    for (const end = Date.now() + PATIENCE; Date.now() < end; ) {
      const found = look()
      if (found !== undefined) return found
      await new Promise((resume) => setTimeout(resume, 5))
    }
    throw new Error(`never came: ${what}`)
  }
  const ask = async (kind, fields) => {
    const id = await say(kind, fields)
    return until(`the answer to ${kind}`, () => answers.get(id))
  }

  const result = {}
  result.welcome = await ask("hello", { versions: [1], client: "node example", cwd: "/nowhere" })
  result.remembered = await ask("remember", {
    text: "the keys of the harbour office hang behind the pump",
    scope: "global",
    key: "node-key",
  })
  result.problem = await ask("dream", {})
  await say("turn", { turn: 1, text: "we ship today" })
  await say("tool_started", { call: "c-1", name: "bash", args: "git tag berth_booking on the release branch" })
  result.settled = await until("settled", () => settled.find((one) => (one.calls ?? []).includes("c-1")))
  await say("tool_ended", { call: "c-1", result: "v1.4" })
  const inject = [...held.values()].find((one) => (one.snippets ?? []).length && one.turn === 1)
  result.snippets = inject ? inject.snippets : []
  await say("boundary", { number: 1, turn: 1, taken: result.snippets.map((one) => one.id) })
  result.why = await ask("why_ask", { target: result.settled.recall })
  result.forgotten = await ask("forget", { path: result.remembered.memory })
  await say("bye")
  result.pong = await ask("ping")
  socket.close()
  await reading.catch(() => undefined)
  return result
}

// ---------------------------------------------------------------- the test vectors of what a client reads

function bytes(parts) {
  return Buffer.concat(
    parts.map((part) =>
      typeof part === "string"
        ? Buffer.from(part, "hex")
        : Buffer.concat(Array(part.times).fill(Buffer.from(part.repeat, "hex"))),
    ),
  )
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain)
  if (value === null || typeof value !== "object") return value
  if ("$repeat" in value) return value.$repeat.repeat(value.$times)
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]))
}

function says(read, wanted) {
  if (typeof wanted === "bigint" || typeof read === "bigint") return BigInt(read) === BigInt(wanted)
  if (wanted === null || typeof wanted !== "object") return read === wanted
  if (read === null || typeof read !== "object" || Array.isArray(read) !== Array.isArray(wanted)) return false
  if (Array.isArray(wanted) && read.length !== wanted.length) return false
  return Object.entries(wanted).every(([key, inner]) => says(read[key], inner)) // unknown fields are skipped
}

function otherwise() {
  const tolerant = new Decoder({ extensionCodec: { tryToEncode: () => null, decode: () => null } })
  const wrong = []
  let tried = 0
  for (const way of ["daemon", "events", "agent"]) {
    for (const row of JSON.parse(readFileSync(join(vectors, `${way}.json`), "utf8")).valid) {
      tried += 1
      try {
        const read = tolerant.decode(bytes(row.frame))
        if (!says(read, plain(row.message))) wrong.push(`${way}: ${row.name}`)
        const again = tolerant.decode(encode(plain(row.message)))
        if (!says(again, plain(row.message))) wrong.push(`${way}: ${row.name}, written`)
      } catch (error) {
        wrong.push(`${way}: ${row.name}: ${error.message}`)
      }
    }
  }
  return { tried, wrong }
}

console.log(JSON.stringify({ ...(path === "-" ? {} : await session()), vectors: otherwise() }, (_, value) =>
  typeof value === "bigint" ? Number(value) : value,
))
process.exit(0)
