// The key of a service in Python that hashes json.dumps(payload, sort_keys=True). Where nobody else
// has to make the same key, name the occurrence instead, as write.ts does.
import { createHash } from 'node:crypto'

type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json }

// Python sorts by code point, JavaScript by UTF-16 unit.
function byCodePoint(a: string, b: string): number {
  const x = Array.from(a, (c) => c.codePointAt(0)!), y = Array.from(b, (c) => c.codePointAt(0)!)
  const i = x.findIndex((point, at) => point !== y[at])
  return i < 0 ? x.length - y.length : x[i]! - (y[i] ?? -1)
}

function quoted(s: string): string {
  return JSON.stringify(s).replace(/[\u007f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))
}

/** JSON as Python writes it. A number has to be a safe integer, as JavaScript cannot tell 12 from 12.0; give a longer one as bigint. */
export function canonical(value: Json): string {
  if (value === null || typeof value === 'boolean') return String(value)
  if (typeof value === 'string') return quoted(value)
  if (typeof value === 'bigint' || Number.isSafeInteger(value)) return String(value)
  if (Array.isArray(value)) return '[' + value.map(canonical).join(', ') + ']'
  if (typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value))) {
    return '{' + Object.keys(value).sort(byCodePoint).map((name) => quoted(name) + ': ' + canonical(value[name]!)).join(', ') + '}'
  }
  throw new TypeError(`no key can be made of a payload with ${typeof value === 'number' ? 'a number that is no safe integer' : 'a value that JSON does not have'}`)
}

export function pythonKey(aggregateId: string, type: string, payload: Json): string {
  return createHash('sha256').update(`${aggregateId}:${type}:${canonical(payload)}`).digest('hex').slice(0, 32)
}
