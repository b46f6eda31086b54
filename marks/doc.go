// Package marks sets published_at and the like on rows that are proven delivered, for whoever reads
// that column.
package marks
