// Package java has the algorithms of Java and Jackson whose output is visible in records: numbers
// and dates as text, BigDecimal, the order of a HashMap, JSON strings. It imports nothing of this
// module.
package java
