package replication

import "time"

// repeatedAfter is the minimum time between two log lines of one notice; those in between are
// counted.
const repeatedAfter = time.Minute

// maxNotices bounds the texts that are remembered.
const maxNotices = 100

// notices are the server's notices by their text. The server repeats some each second while their
// cause lasts.
type notices map[string]*saidNotice

type saidNotice struct {
	logged time.Time
	left   int // since then, not logged
}

// admit reports whether a notice is to be logged, and how many with its text were left out.
func (n notices) admit(text string, now time.Time) (left int, ok bool) {
	said := n[text]
	if said == nil {
		if len(n) >= maxNotices {
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
