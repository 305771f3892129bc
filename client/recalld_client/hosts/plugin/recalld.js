// recalld's plugin for OpenCode: tells the daemon what happens, and appends what came to mind.
//
// OpenCode awaits its plugins, so everything here is bounded by 150 ms, and whatever goes wrong is silence: the
// conversation is then what it would be without us. One connection per event to the daemon's hook socket:
// `recalld-hook/1 opencode EVENT LENGTH\n` and LENGTH bytes of JSON; what comes back until the end is the text to add.
// A tool's start is told and not waited for, so that the recall races the tool. Why nothing came is told once in the same
// hook.log as the other hosts' hooks tell it in. No dependencies; runs in Bun and Node.

import { lstatSync } from "node:fs"
import { appendFile, mkdir, readFile, rm, writeFile } from "node:fs/promises"
import { connect } from "node:net"
import { homedir } from "node:os"
import { dirname, isAbsolute, join } from "node:path"

const BUDGET_MS = 150 // of one event, from its beginning: what a daemon that hangs may cost
const REQUEST_LIMIT = 8 * 1024 * 1024 // bytes, the daemon's own limit
const RESULT_CHARS = 256 * 1024 // of a tool's result: more than OpenCode itself lets through
const REPLY_LIMIT = 64 * 1024 // characters; three short lines are expected
const ID_CHARS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

export const Recalld = async ({ directory }) => {
  if (process.env.RECALLD_OFF === "1") return {}
  const ask = (event, session, more) => exchange(event, { session, cwd: directory ?? "", event, ...more })
  const tell = (event, session, more) => void ask(event, session, more)

  return {
    "chat.message": swallow(async (input, output) => {
      const text = userText(output.parts)
      const lines = await ask("turn", input.sessionID, { text })
      if (lines) output.parts.push(partOf(lines, input.sessionID, output.message.id))
    }),
    "tool.execute.before": swallow(async (input, output) => {
      tell("tool_started", input.sessionID, { call: input.callID, tool: input.tool, args: output.args })
    }),
    "tool.execute.after": swallow(async (input, output) => {
      const more = { call: input.callID, tool: input.tool, args: input.args, result: resultOf(output), ok: true }
      const lines = await ask("tool_ended", input.sessionID, more)
      if (lines) append(output, lines)
    }),
    "experimental.text.complete": swallow(async (input, output) => {
      tell("said", input.sessionID, { text: output.text })
    }),
    event: swallow(async ({ event }) => {
      const told = event.properties
      if (event.type === "session.compacted") tell("compacted", told.sessionID)
      else if (event.type === "session.deleted") tell("ended", told.info?.id ?? told.sessionID)
      else if (event.type === "message.part.updated") failed(told.part, tell)
    }),
  }
}

// A tool that threw has no "after", and nothing can be added to its result: it is told without asking for anything.
function failed(part, tell) {
  if (part.type !== "tool" || part.state.status !== "error") return
  const more = { call: part.callID, tool: part.tool, args: part.state.input, result: part.state.error, ok: false }
  tell("tool_failed", part.sessionID, more)
}

// What the user wrote, less what other plugins or OpenCode itself added in the user's name.
function userText(parts) {
  return parts.flatMap((part) => (part.type === "text" && !part.synthetic ? [part.text] : [])).join("\n")
}

// OpenCode's own tools give `output`, those of an MCP server `content`, a list of parts.
function resultOf(output) {
  const text = typeof output.output === "string" ? output.output : textOf(output.content)
  return text.slice(0, RESULT_CHARS)
}

function textOf(content) {
  if (!Array.isArray(content)) return ""
  return content.flatMap((part) => (part?.type === "text" ? [part.text] : [])).join("\n")
}

function append(output, lines) {
  if (typeof output.output === "string") output.output += `\n\n${lines}`
  else if (Array.isArray(output.content)) output.content.push({ type: "text", text: lines })
}

function partOf(text, sessionID, messageID) {
  return { id: partID(), sessionID, messageID, type: "text", text, synthetic: true }
}

// Parts stand in the order of their ids, which begin with the time, so that this one comes after the user's words.
function partID() {
  const time = (BigInt(Date.now()) * 0x1000n + 0xfffn) & 0xffffffffffffn
  const random = Array.from({ length: 14 }, () => ID_CHARS[Math.floor(Math.random() * ID_CHARS.length)])
  return `prt_${time.toString(16).padStart(12, "0")}${random.join("")}`
}

function swallow(hook) {
  return async (...args) => {
    try {
      await hook(...args)
    } catch {
      // a shape that this version of OpenCode does not have: the agent goes on without us
    }
  }
}

// The daemon's answer, "" for none. Never rejects, and never takes longer than BUDGET_MS.
function exchange(event, payload) {
  return new Promise((resolve) => {
    let socket
    let reply = ""
    const end = (text, cause) => {
      clearTimeout(timer)
      socket?.destroy()
      resolve(text)
      tellOnce(cause)
    }
    const timer = setTimeout(
      () => end("", `nothing within ${BUDGET_MS} ms from ${socketPath()}: is recalld stopped, or very busy?`),
      BUDGET_MS,
    )
    try {
      const body = Buffer.from(JSON.stringify(payload))
      const path = socketPath()
      const problem = problemOf(path, body)
      if (problem) return end("", problem)
      socket = connect(path)
      socket.setEncoding("utf8")
      socket.on("error", (error) => end("", `${path}: ${whyOf(error)}`))
      socket.on("data", (chunk) => {
        if ((reply += chunk).length > REPLY_LIMIT) end("", `${path}: an answer that is no recalld's`)
      })
      socket.on("end", () => end(reply, ""))
      socket.write(Buffer.concat([Buffer.from(`recalld-hook/1 opencode ${event} ${body.length}\n`), body]))
    } catch (error) {
      end("", String(error))
    }
  })
}

// The directory must be ours and closed to others, or nothing is said.
function problemOf(path, body) {
  if (!path) return `RECALLD_RUNTIME_DIR must be an absolute path, not '${process.env.RECALLD_RUNTIME_DIR}'`
  if (body.length > REQUEST_LIMIT) return "a payload over 8 MiB was not handed on: nothing to mend"
  const directory = dirname(path)
  const found = lstatSync(directory, { throwIfNoEntry: false })
  if (!found) return `${directory}: no daemon listens: start it with \`recalld run\``
  const safe = found.isDirectory() && found.uid === process.getuid() && (found.mode & 0o777) === 0o700
  return safe ? "" : `${directory} must be a directory of this user's with mode 0700: see who made it`
}

function whyOf(error) {
  const absent = error.code === "ENOENT" || error.code === "ECONNREFUSED"
  return absent ? "no daemon listens: start it with `recalld run`" : error.message
}

// ---------------------------------------------------------------- the log

let told // the cause told last; undefined: nothing is known yet, "": all is well

// Beside what the conversation waits for: a log on a dead file server costs nothing but itself.
function tellOnce(cause) {
  if (cause === told) return
  told = cause
  log(cause).catch(() => undefined)
}

async function log(cause) {
  const directory = stateDirectory()
  const marker = join(directory, "hook.trouble")
  if (!cause) return rm(marker, { force: true })
  if ((await readFile(marker, "utf8").catch(() => "")) === cause) return
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await writeFile(marker, cause, { mode: 0o600 })
  const at = `${new Date().toISOString().slice(0, 19)}Z`
  await appendFile(join(directory, "hook.log"), `${at} recalld hook (opencode): ${cause}\n`, { mode: 0o600 })
}

// ---------------------------------------------------------------- places, by the rules of recalld_protocol/endpoints.py

function socketPath() {
  const directory = runtimeDirectory()
  return directory && join(directory, "hook.sock")
}

function runtimeDirectory() {
  const env = process.env
  if (env.RECALLD_RUNTIME_DIR) return isAbsolute(env.RECALLD_RUNTIME_DIR) ? env.RECALLD_RUNTIME_DIR : ""
  if (isAbsolute(env.XDG_RUNTIME_DIR ?? "")) return join(env.XDG_RUNTIME_DIR, "recalld")
  const login = `/run/user/${process.getuid()}`
  const found = lstatSync(login, { throwIfNoEntry: false })
  if (found?.isDirectory() && found.uid === process.getuid()) return join(login, "recalld")
  return join(stateHome(), "recalld", "run")
}

function stateDirectory() {
  const chosen = process.env.RECALLD_RUNTIME_DIR ?? ""
  return isAbsolute(chosen) ? chosen : join(stateHome(), "recalld")
}

function stateHome() {
  const given = process.env.XDG_STATE_HOME ?? ""
  return isAbsolute(given) ? given : join(process.env.HOME || homedir(), ".local", "state")
}
