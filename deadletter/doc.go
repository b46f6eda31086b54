// Package deadletter is the form of a rejected row in the dead-letter topic, and
// what can be done with it there.
//
// A letter is the record that was refused, key, value and headers, and behind them
// headers of ours that say why and where it came from. What the router could not
// make, or the brokers would not take even here, is missing, and a header names it.
//
// Several relays may share a topic, so each letter names its source. Within that, a
// record is known by timeline and position of its row, and by its number among the
// records of that row (ID). A crash may put a letter there twice.
//
// A marker says that letters were re-driven or discarded. It has the key of the
// letters and lies in their partition, behind them. Both carry a group: a hash of
// topic and key, or of the letter alone where it has no order to keep. A marker names
// offsets: those that whoever wrote it had read, so it never covers a letter that came
// meanwhile. A letter behind it counts again. So the topic alone says what is still to
// be done, to whoever reads it from the beginning, and nothing else has to be kept
// anywhere.
//
// With parking, later rows of a key follow a rejected one into the topic (Parked)
// until markers cover them all. The relay parks a key before it sends the letter, and
// frees it only when no letter of it waits and none is on its way.
//
// Letters and markers of version 0.1 name neither timeline nor number nor offsets; its
// markers cover a group up to a row. They are read as they were meant.
package deadletter
