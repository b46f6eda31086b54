//go:build race

package outbox

const race = true
