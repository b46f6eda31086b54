package wal

// Sizes in bytes, access/xlog_internal.h: XLOG_BLCKSZ, SizeOfXLogShortPHD and
// SizeOfXLogLongPHD.
const (
	pageSize       = 8192
	pageHeader     = 24 // of a page
	longPageHeader = 40 // of the first page of a segment
)

// BeforePageHeader is an insert position without the header of a page that holds nothing
// yet. The header is written with the first record of the page, so on a quiet server the
// flush position stays before the header, and so does what a slot can confirm.
func BeforePageHeader(inserted LSN, segmentSize uint64) LSN {
	switch {
	case segmentSize > 0 && uint64(inserted)%segmentSize == longPageHeader:
		return inserted - longPageHeader
	case inserted%pageSize == pageHeader:
		return inserted - pageHeader
	}
	return inserted
}
