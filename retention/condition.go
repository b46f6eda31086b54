package retention

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/postgres"
)

// readsOnly tells a condition that writes from a server that takes no writes: rows are named in a
// read-only transaction, on a primary.
func (p *Policy) readsOnly(err error) error {
	if err == nil || p.Where == "" || postgres.SQLState(err) != "25006" {
		return err
	}
	return p.Mistake("where", "write a condition that only reads", "it writes, and rows are chosen in a read-only transaction: %w", err)
}

// CheckCondition refuses text that is not one SQL condition by itself: parentheses and quotes
// that are not closed or were not opened, or a second statement. What the words mean only a
// server can tell.
func CheckCondition(text string) error {
	depth := 0
	for rest := text; rest != ""; {
		switch rest[0] {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return errors.New("a parenthesis is closed that was not opened")
			}
		case ';':
			return errors.New("it has a semicolon; allowed: one condition")
		case 0:
			return errors.New("it has a zero byte")
		default:
			n, err := postgres.SQLToken(rest)
			if err != nil {
				return err
			}
			rest = rest[n:]
			continue
		}
		rest = rest[1:]
	}
	if depth > 0 {
		return errors.New("a parenthesis is not closed")
	}
	return nil
}
