// Keys that Python 3.11 made.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { canonical, pythonKey } from './key.ts'

test('keys are those of Python', () => {
  assert.equal(pythonKey('7f0c1c5e-0000-4000-8000-000000000001', 'OrderCreated', { total: 12 }), '021bf1d1861a1a39e64c53fe459f5370')
  assert.equal(pythonKey('a', 'T', { z: 1, a: [true, null, { b: 'é', a: '😀' }] }), '0b25e6e40af24e2879cc3aafa36ed24a')
  assert.equal(pythonKey('a', 'T', { s: '<&>/"\\\b\f\n\r\t\u007f\u0000\u2028' }), 'c7eed7db010f6258f7de3fec1a965045')
  assert.equal(pythonKey('a', 'T', { '\ud800\udc00': 2, '\ue000': 1, a: 4, A: 3, '': 5 }), 'e75a5b415e1fbbe56535b45b49110e15')
  assert.equal(pythonKey('a', 'T', { n: 12345678901234567890123n }), '731c4e8c7abc2daf8634dffb64ca94d1')
  assert.equal(pythonKey('é', 'T', {}), '34de26f46cee42181c846f44ddd14ebf')
})

test('what JavaScript cannot tell apart is refused', () => {
  for (const value of [12.5, NaN, Infinity, 2 ** 53, undefined, new Date(0), () => 1] as never[]) {
    assert.throws(() => canonical({ value }), TypeError)
  }
  assert.equal(canonical({ '': '\ud800', b: -0, ab: [], a: {} }), '{"": "\\ud800", "a": {}, "ab": [], "b": 0}')
})
