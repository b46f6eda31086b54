// Package connect is the data model of Kafka Connect: schemas, values, and their JSON. The folders
// below make values and write them:
//
//   - codec: a column's text to a value, as Debezium's PostgreSQL connector makes it.
//   - expand: JSON text to a struct.
//   - converter: values to the bytes of keys, values and headers.
//   - java: the algorithms of Java whose output is visible.
//
// It is pure and imports nothing of this module but java. The order of use:
//
//	modes, err := codec.ParseModes(properties)        // once
//	column, err := codec.New(column, modes)           // once for each relation and column
//	value, err := column.Decode(text)                 // each row
//	value = column.Schema.Or(value)                   // where Connect substitutes the default
//	converter, err := converter.New(class, options)   // once
//	dst, null, err := converter.Append(dst, column.Schema, value)
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
