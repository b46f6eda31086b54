package export

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// Header is the first line of a file.
type Header struct {
	Table    string   `json:"table"`
	Slice    string   `json:"slice"` // when it begins
	Columns  []Column `json:"columns"`
	Slots    []string `json:"slots"`    // that have passed the rows
	Position string   `json:"position"` // end of the WAL, past all of the rows

	Repeats bool `json:"-"` // rows may be equal to earlier ones: a file with the same content may be of those
}

// Column is one of a table.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Trailer is the last line of a file.
type Trailer struct {
	Rows   int    `json:"rows"`
	SHA256 string `json:"sha256"` // of the lines between the first and the last one, with their ends
}

// Value is one of a row, in the text form of the database; nil: it is NULL.
type Value *string

// encoder writes the lines of one file.
type encoder struct {
	to   *zstd.Encoder
	sum  hash.Hash
	rows int
	line bytes.Buffer
}

func newEncoder(to io.Writer, header *Header) (*encoder, error) {
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, err
	}
	e := &encoder{to: z, sum: sha256.New()}
	line, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(append(line, '\n'))
	return e, err
}

// row writes one, its columns in the order of the table.
func (e *encoder) row(columns []Column, values []Value) error {
	e.line.Reset()
	text := json.NewEncoder(&e.line)
	text.SetEscapeHTML(false)
	for i := range columns {
		if values[i] != nil && !utf8.ValidString(*values[i]) {
			return fmt.Errorf("column %q has bytes that are no UTF-8, in a database without an encoding", columns[i].Name)
		}
		e.line.WriteByte("{,"[min(i, 1)])
		if err := text.Encode(columns[i].Name); err != nil {
			return err
		}
		e.line.Truncate(e.line.Len() - 1) // the end of a line
		e.line.WriteByte(':')
		if err := text.Encode(values[i]); err != nil {
			return err
		}
		e.line.Truncate(e.line.Len() - 1)
	}
	e.line.WriteString("}\n")
	e.sum.Write(e.line.Bytes())
	e.rows++
	_, err := e.to.Write(e.line.Bytes())
	return err
}

// end writes the last line.
func (e *encoder) end() (Trailer, error) {
	t := Trailer{e.rows, hex.EncodeToString(e.sum.Sum(nil))}
	line, err := json.Marshal(t)
	if err == nil {
		_, err = e.to.Write(append(line, '\n'))
	}
	if end := e.to.Close(); err == nil {
		err = end
	}
	return t, err
}

// encode writes a whole file.
func encode(to io.Writer, header *Header, each func(row func([]Value) error) error) (t Trailer, err error) {
	e, err := newEncoder(to, header)
	if err != nil {
		return t, err
	}
	if err := each(func(values []Value) error { return e.row(header.Columns, values) }); err != nil {
		_ = e.to.Close()
		return t, err
	}
	return e.end()
}

// read goes through a whole file and returns its last line, if that is what the others add up to.
func read(from io.Reader) (Trailer, error) {
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return Trailer{}, err
	}
	defer z.Close()
	lines := bufio.NewReaderSize(z, 64<<10)
	sum, rows, last := sha256.New(), -1, []byte(nil)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil {
			return Trailer{}, err
		}
		if rows > 0 { // the one before was a row
			sum.Write(last)
		}
		rows++
		last = line
	}
	var t Trailer
	if err := json.Unmarshal(last, &t); err != nil || t.SHA256 == "" {
		return Trailer{}, errors.New("it has no last line with count and SHA-256")
	}
	if t.Rows != rows-1 || t.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		return Trailer{}, fmt.Errorf("it has %d rows, and its last line says %d with another SHA-256", rows-1, t.Rows)
	}
	return t, nil
}
