package router

// ConfigError is one thing wrong with the configuration of a table. Path names
// the key as the configuration file has it, such as `outbox[0].topic`.
type ConfigError struct {
	Path string
	Err  error
}

func (e *ConfigError) Error() string { return e.Path + ": " + e.Err.Error() }

func (e *ConfigError) Unwrap() error { return e.Err }

// ConfigErrors lists every *ConfigError that New or Pin joined into err.
func ConfigErrors(err error) []*ConfigError {
	if one, ok := err.(*ConfigError); ok { //nolint:errorlint // the tree is walked here
		return []*ConfigError{one}
	}
	var all []*ConfigError
	switch e := err.(type) { //nolint:errorlint // the tree is walked here
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, ConfigErrors(inner)...)
		}
	case interface{ Unwrap() error }:
		all = ConfigErrors(e.Unwrap())
	}
	return all
}
