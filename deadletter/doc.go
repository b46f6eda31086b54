// Package deadletter is the form of a rejected row in the dead-letter topic, and
// what can be done with it there.
//
// A letter is the record that was refused, key, value and headers, and behind them
// headers of ours that say why and where it came from. What the router could not
// make, or the brokers would not take even here, is missing, and a header names it.
//
// A marker says that letters were re-driven or discarded. It has the key of the
// letters, so it lies in their partition, behind them. Both carry a group: a hash of
// topic and key, or of the letter alone where it has no order to keep. A marker
// covers every letter of its group up to a row; a letter behind it counts again.
// So the topic alone says what is still to be done, to whoever reads it from the
// beginning, and nothing else has to be kept anywhere.
//
// With parking, later rows of a key follow a rejected one into the topic (Parked)
// until a marker covers the last of them. The relay parks a key before it sends the
// letter, and frees it only for a marker that covers the last row it has parked: a
// row that followed while somebody re-drove the ones before it keeps the key parked.
package deadletter
