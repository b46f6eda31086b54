package javaregex

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Regex is a Java pattern in Go's words. What Go has no words for is an error.
type Regex struct {
	Whole    *regexp.Regexp // Java's matches
	Anywhere *regexp.Regexp // Java's find
}

// Compile reads a pattern of java.util.regex.
func Compile(pattern string, ignoreCase bool) (*Regex, error) {
	t := translator{rest: pattern}
	out, err := t.translate()
	if err != nil {
		return nil, fmt.Errorf("the regular expression %q %w", pattern, err)
	}
	if ignoreCase {
		out = "(?i)" + out
	}
	find, err := regexp.Compile(out)
	if err != nil {
		return nil, fmt.Errorf("the regular expression %q is not valid: %w", pattern, err)
	}
	whole, err := regexp.Compile(`\A(?:` + out + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("the regular expression %q is not valid: %w", pattern, err)
	}
	return &Regex{Whole: whole, Anywhere: find}, nil
}

// ReplaceFirst is Kafka's RegexRouter: text itself, unless all of it matches.
func (r *Regex) ReplaceFirst(text string, with *Replacement) string {
	if !r.Whole.MatchString(text) {
		return text
	}
	m := r.Anywhere.FindStringSubmatchIndex(text)
	if m == nil {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:m[0]])
	for _, p := range with.parts {
		b.WriteString(p.literal)
		if p.group >= 0 && m[2*p.group] >= 0 {
			b.WriteString(text[m[2*p.group]:m[2*p.group+1]])
		}
	}
	b.WriteString(text[m[1]:])
	return b.String()
}

// Replacement is the second argument of Java's replaceFirst.
type Replacement struct {
	Text  string
	parts []replacementPart
}

type replacementPart struct {
	literal string
	group   int // behind literal; -1: none
}

// ParseReplacement refuses at once what Java refuses at the first match.
func ParseReplacement(text string, regex *regexp.Regexp) (*Replacement, error) {
	r := &Replacement{Text: text}
	var literal strings.Builder
	group := func(n int) {
		r.parts = append(r.parts, replacementPart{literal.String(), n})
		literal.Reset()
	}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\\':
			if i+1 == len(text) {
				return nil, errors.New("ends with a backslash: the character to be escaped is missing")
			}
			_, n := utf8.DecodeRuneInString(text[i+1:])
			literal.WriteString(text[i+1 : i+1+n])
			i += 1 + n
		case c != '$':
			literal.WriteByte(c)
			i++
		case i+1 == len(text):
			return nil, errors.New("has a lone $, an illegal group reference; write \\$ for a dollar")
		case text[i+1] == '{':
			name := text[i+2:]
			end := 0
			for end < len(name) && (letter(name[end]) || end > 0 && digit(name[end])) {
				end++
			}
			if end == 0 || end == len(name) || name[end] != '}' {
				return nil, errors.New("has ${ without the name of a group and } after it; a name has letters and digits of ASCII, so no underscore: the named capturing group is missing its trailing }")
			}
			n := regex.SubexpIndex(name[:end])
			if n < 0 {
				return nil, fmt.Errorf("names a group that the regular expression does not have: no group with name {%s}", name[:end])
			}
			group(n)
			i += 2 + end + 1
		case digit(text[i+1]):
			n, used := int(text[i+1]-'0'), 1
			if n > regex.NumSubexp() {
				return nil, fmt.Errorf("names a group that the regular expression does not have: no group %d", n)
			}
			for i+1+used < len(text) && digit(text[i+1+used]) {
				next := n*10 + int(text[i+1+used]-'0')
				if next > regex.NumSubexp() {
					break
				}
				n = next
				used++
			}
			group(n)
			i += 1 + used
		default:
			return nil, errors.New("has a lone $, an illegal group reference; write \\$ for a dollar")
		}
	}
	if literal.Len() > 0 {
		group(-1)
	}
	return r, nil
}

func digit(c byte) bool  { return '0' <= c && c <= '9' }
func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// translator rewrites a Java pattern for RE2.
type translator struct {
	rest   string
	out    strings.Builder
	dotAll bool
}

var errNoWords = errors.New("uses syntax that this program's regular expressions (RE2) have no words for")

func unsupported(what string) error { return fmt.Errorf("%w: %s", errNoWords, what) }

const (
	notLineEnd = `[^\n\r\x{85}\x{2028}\x{2029}]`
	javaSpace  = `\t\n\x0b\f\r `
)

func (t *translator) translate() (string, error) {
	for t.rest != "" {
		if err := t.step(); err != nil {
			return "", err
		}
	}
	return t.out.String(), nil
}

func (t *translator) take(n int) string {
	head := t.rest[:n]
	t.rest = t.rest[n:]
	return head
}

func (t *translator) step() error {
	switch c := t.rest[0]; c {
	case '(':
		return t.group()
	case '[':
		return t.class()
	case '\\':
		return t.escape(false)
	case '.':
		t.take(1)
		if t.dotAll {
			t.out.WriteString(`(?s:.)`)
		} else {
			t.out.WriteString(notLineEnd)
		}
	case '^':
		t.take(1)
		t.out.WriteString(`\A`)
	case '$':
		t.take(1)
		t.out.WriteString(`\z`)
	case '*', '+', '?':
		t.out.WriteString(t.take(1))
		return t.suffix()
	case '{':
		end := strings.IndexByte(t.rest, '}')
		if end < 0 || !repetition.MatchString(t.rest[:end+1]) {
			return errors.New("has an illegal repetition")
		}
		t.out.WriteString(t.take(end + 1))
		return t.suffix()
	default:
		_, n := utf8.DecodeRuneInString(t.rest)
		t.out.WriteString(t.take(n))
	}
	return nil
}

var repetition = regexp.MustCompile(`^\{\d+(,\d*)?\}$`)

// suffix follows a quantifier.
func (t *translator) suffix() error {
	switch {
	case strings.HasPrefix(t.rest, "+"):
		return unsupported("a possessive quantifier")
	case strings.HasPrefix(t.rest, "?"):
		t.out.WriteString(t.take(1))
	}
	return nil
}

func (t *translator) group() error {
	switch {
	case strings.HasPrefix(t.rest, "(?=") || strings.HasPrefix(t.rest, "(?!"):
		return unsupported("look-ahead")
	case strings.HasPrefix(t.rest, "(?<=") || strings.HasPrefix(t.rest, "(?<!"):
		return unsupported("look-behind")
	case strings.HasPrefix(t.rest, "(?>"):
		return unsupported("an atomic group")
	case strings.HasPrefix(t.rest, "(?<"):
		name, _, found := strings.Cut(t.rest[3:], ">")
		if !found || !groupName.MatchString(name) {
			return errors.New("has a named capturing group whose name is not letters and digits of ASCII, or is missing its trailing >")
		}
		t.out.WriteString(t.take(3 + len(name) + 1))
	case strings.HasPrefix(t.rest, "(?:"):
		t.out.WriteString(t.take(3))
	case strings.HasPrefix(t.rest, "(?"):
		end := strings.IndexAny(t.rest, ":)")
		if end < 0 {
			return errors.New("has an unclosed group")
		}
		flags := t.rest[2:end]
		if strings.Trim(flags, "is") != "" {
			return unsupported("flags " + flags)
		}
		if strings.Contains(flags, "s") {
			if t.out.Len() > 0 || t.rest[end] == ':' {
				return unsupported("flag s that does not stand in front")
			}
			t.dotAll = true
		}
		t.out.WriteString(t.take(end + 1))
	default:
		t.out.WriteString(t.take(1))
	}
	return nil
}

var groupName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*$`)

func (t *translator) class() error {
	t.out.WriteString(t.take(1))
	if strings.HasPrefix(t.rest, "^") {
		t.out.WriteString(t.take(1))
	}
	for first := true; ; first = false {
		switch {
		case t.rest == "":
			return errors.New("has an unclosed character class")
		case t.rest[0] == ']' && !first:
			t.out.WriteString(t.take(1))
			return nil
		case t.rest[0] == '[':
			return unsupported("a character class inside a character class")
		case strings.HasPrefix(t.rest, "&&"):
			return unsupported("an intersection of character classes")
		case t.rest[0] == '\\':
			if err := t.escape(true); err != nil {
				return err
			}
		default:
			_, n := utf8.DecodeRuneInString(t.rest)
			t.out.WriteString(t.take(n))
		}
	}
}

var posixClasses = map[string]string{
	"Lower": "[:lower:]", "Upper": "[:upper:]", "ASCII": "[:ascii:]", "Alpha": "[:alpha:]", "Digit": "[:digit:]", "Alnum": "[:alnum:]",
	"Punct": "[:punct:]", "Graph": "[:graph:]", "Print": "[:print:]", "Blank": "[:blank:]", "Cntrl": "[:cntrl:]", "XDigit": "[:xdigit:]", "Space": javaSpace,
}

func (t *translator) escape(inClass bool) error {
	if len(t.rest) < 2 {
		return errors.New("ends with a backslash")
	}
	switch c := t.rest[1]; {
	case c == 'Q' && inClass:
		return unsupported(`\Q in a character class`)
	case c == 'Q':
		literal, _, _ := strings.Cut(t.rest[2:], `\E`)
		t.rest = strings.TrimPrefix(t.rest[2+len(literal):], `\E`)
		t.out.WriteString(regexp.QuoteMeta(literal))
	case c == 's':
		t.take(2)
		t.bracketed(javaSpace, inClass)
	case c == 'S':
		if inClass {
			return unsupported(`\S in a character class`)
		}
		t.take(2)
		t.out.WriteString("[^" + javaSpace + "]")
	case c == 'u':
		if len(t.rest) < 6 || strings.Trim(t.rest[2:6], "0123456789abcdefABCDEF") != "" {
			return errors.New(`has \u without four hexadecimal digits`)
		}
		t.out.WriteString(`\x{` + t.rest[2:6] + `}`)
		t.take(6)
	case c == 'e':
		t.take(2)
		t.out.WriteString(`\x1b`)
	case c == 'p' || c == 'P':
		return t.property(inClass)
	case c == 'b' && inClass, c == 'B' && inClass:
		return unsupported(`\` + string(c) + " in a character class")
	case strings.IndexByte("dDwWtnrfabBAz", c) >= 0 || c == 'x':
		t.out.WriteString(t.take(2))
	case '1' <= c && c <= '9' || c == 'k':
		return unsupported("a back-reference")
	case letter(c) || c == '0':
		return unsupported(`\` + string(c))
	default:
		_, n := utf8.DecodeRuneInString(t.rest[1:])
		if n > 1 {
			t.take(1)
		} else {
			n = 2
		}
		t.out.WriteString(t.take(n))
	}
	return nil
}

func (t *translator) bracketed(members string, inClass bool) {
	if inClass {
		t.out.WriteString(members)
		return
	}
	t.out.WriteString("[" + members + "]")
}

// property is \p{…}: a general category, a script, or one of the ASCII classes.
func (t *translator) property(inClass bool) error {
	negated := t.rest[1] == 'P'
	if len(t.rest) > 2 && t.rest[2] != '{' {
		t.out.WriteString(t.take(3))
		return nil
	}
	end := strings.IndexByte(t.rest, '}')
	if end < 0 {
		return errors.New(`has \p{ without }`)
	}
	name := t.take(end + 1)[3:end]
	if members, ok := posixClasses[name]; ok {
		switch {
		case !negated:
			t.bracketed(members, inClass)
		case inClass:
			return unsupported(`\P{` + name + "} in a character class")
		default:
			t.out.WriteString("[^" + members + "]")
		}
		return nil
	}
	plain := strings.TrimPrefix(name, "Is")
	form := `\p{` + plain + "}"
	if _, err := regexp.Compile(form); err != nil || strings.HasPrefix(name, "In") || strings.HasPrefix(name, "java") {
		return unsupported(`\p{` + name + "}")
	}
	if negated {
		form = `\P` + form[2:]
	}
	t.out.WriteString(form)
	return nil
}

// List reads a comma-separated list of Java patterns, as table and column
// filters have it; `\,` is a comma.
func List(text string) ([]*Regex, error) {
	var list []*Regex
	for _, item := range Split(text) {
		r, err := Compile(item, true)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// Split splits at commas without a backslash, and trims the parts. Empty ones are left out.
func Split(text string) []string {
	var items []string
	var b strings.Builder
	flush := func() {
		if item := strings.TrimSpace(b.String()); item != "" {
			items = append(items, item)
		}
		b.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == ',':
			b.WriteByte(',')
			i++
		case text[i] == ',':
			flush()
		default:
			b.WriteByte(text[i])
		}
	}
	flush()
	return items
}

// MatchesAny reports whether one of the patterns matches the whole text.
func MatchesAny(list []*Regex, text string) bool {
	for _, r := range list {
		if r.Whole.MatchString(text) {
			return true
		}
	}
	return false
}
