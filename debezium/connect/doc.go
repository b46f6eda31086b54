// Package connect is the data model of Kafka Connect and what Debezium's
// PostgreSQL connector makes of a column in it: schemas, values, the codecs
// from a column's text form, the expansion of JSON text into structs, and the
// converters that write keys, values and headers.
//
// It is pure and imports nothing of this module. The order of use:
//
//	modes, err := ParseModes(properties)          // once
//	codec, err := NewCodec(column, modes)         // once for each relation and column
//	value, err := codec.Decode(text)                      // each row
//	value = codec.Schema.Or(value)                        // where Connect substitutes the default
//	converter, err := NewConverter(class, options) // once
//	dst, null, err := converter.Append(dst, codec.Schema, value)
//
// It promises:
//
//  1. Bytes are those of Debezium 3.6 on Connect 4 and a JDK of version 19 or
//     later. Where Java's result differs from run to run (identity hashes, the
//     order of merged members) there is one fixed result.
//  2. What Java refuses is refused here for the same cause. No error holds a
//     value of the row.
//  3. A Value aliases the bytes it was decoded from. Schemas, codecs and
//     converters are immutable and may be shared; an Expander may not.
package connect
