package advice

// Advised is a ConfigError's cause that knows what to do about it. Its text has
// all three.
type Advised struct {
	What  error
	Hint  string // one line
	Block string // configuration to paste that makes the hint an example; may be empty
}

func Give(what error, hint string) error { return &Advised{What: what, Hint: hint} }

func (e *Advised) Error() string {
	text := e.What.Error()
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	if e.Block != "" {
		text += ", for example\n" + e.Block
	}
	return text
}

func (e *Advised) Unwrap() error { return e.What }
