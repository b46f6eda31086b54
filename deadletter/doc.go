// Package deadletter defines how a rejected row is stored in the dead-letter topic, and what can
// be done with it there.
//
// A letter is the rejected record: key, value and headers. Further headers give the reason and
// the row's place. A header names the parts that are missing, because the router could not make
// them or the brokers refused them even here.
//
// Several relays may share a topic, so each letter names its source. Within a source, timeline
// and position of the row and the record's number among the row's records identify the record
// (ID). A crash may write a letter twice.
//
// A marker records that letters were re-driven or discarded. It has the key of the letters and lies
// after them in the same partition. Both carry a group: a hash of topic and key, or of the
// letter alone if it has no key to keep in order. A marker names the offsets that its writer had
// read, so it never covers a letter that arrived meanwhile. A letter after a marker counts as
// waiting. So a reader of the topic alone knows what is still to be done, and nothing else is
// stored.
//
// With parking, later rows of a key follow a rejected row into the topic (Parked) until markers
// cover all of them. The relay parks a key before it sends the letter. It frees the key when no
// letter of it waits or is about to be written.
//
// Letters and markers of earlier builds lack timeline, number and offsets; their markers cover a
// group up to a row. They are read with that meaning.
package deadletter
