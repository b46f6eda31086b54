package connect

import "strings"

// NameMode is schema.name.adjustment.mode and field.name.adjustment.mode.
type NameMode uint8

// The name modes.
const (
	NamesAsIs NameMode = iota
	NamesAvro
	NamesAvroUnicode
)

// SchemaName is a schema's full name as the mode allows it.
func (m NameMode) SchemaName(name string) string {
	return m.adjust(name, true)
}

// FieldName is a field's name as the mode allows it.
func (m NameMode) FieldName(name string) string {
	return m.adjust(name, false)
}

func (m NameMode) adjust(name string, dots bool) string {
	if m == NamesAsIs {
		return name
	}
	var b strings.Builder
	changed := false
	for i, r := range name {
		digit := r >= '0' && r <= '9'
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || digit && i > 0 || dots && r == '.' && i > 0 || r == '_' && m == NamesAvro:
			b.WriteRune(r)
			continue
		case digit && m == NamesAvro:
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			m.replace(&b, r) // the underscore too where it begins an escape
		}
		changed = true
	}
	if !changed {
		return name
	}
	return b.String()
}

// replace writes what stands for each UTF-16 unit of r.
func (m NameMode) replace(b *strings.Builder, r rune) {
	units := []uint16{uint16(r)}
	if r > 0xffff {
		r -= 0x10000
		units = []uint16{uint16(0xd800 + r>>10), uint16(0xdc00 + r&0x3ff)}
	}
	for _, u := range units {
		b.WriteByte('_')
		if m == NamesAvroUnicode {
			const hex = "0123456789abcdef"
			b.WriteString("u")
			for shift := 12; shift >= 0; shift -= 4 {
				b.WriteByte(hex[u>>shift&15])
			}
		}
	}
}
