// Package audit proves a table against its topics: every row has its record, in the right topic,
// once or at least once, with the content that the mapping makes, and in the order of its key.
// It only reads.
//
//  1. A snapshot of the tables is taken, and L is the insert position of the WAL afterwards. What
//     the snapshot shows has committed before L (package proof).
//  2. Every slot is waited for, until it has passed L. From then on every row of the snapshot has
//     its record in Kafka, or a dead letter, if the relay did what it promises.
//  3. The rows are routed with the present mapping, and reduced to hashes.
//  4. The dead letters are read, and afterwards where the topics end. A record that is sent again
//     from a letter in between is in one of the two.
//  5. The committed records up to those ends are reduced to hashes too.
//  6. Package match compares, in the memory that it is given and in files.
package audit
