package replication

import "time"

// repeatedAfter is how long a notice of the server that was just logged is only counted.
const repeatedAfter = time.Minute

// mostNotices bounds the texts that are known.
const mostNotices = 100

// notices are those that the server sent. It says some again each second, as long as their cause
// is there.
type notices map[string]*saidNotice

type saidNotice struct {
	logged time.Time
	left   int // of the same text, since then
}

// admit reports whether a notice is to be logged, and how many with its text were left out.
func (n notices) admit(text string, now time.Time) (left int, ok bool) {
	said := n[text]
	if said == nil {
		if len(n) >= mostNotices {
			clear(n)
		}
		n[text] = &saidNotice{logged: now}
		return 0, true
	}
	if now.Sub(said.logged) < repeatedAfter {
		said.left++
		return 0, false
	}
	left = said.left
	*said = saidNotice{logged: now}
	return left, true
}
