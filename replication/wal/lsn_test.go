package wal

import "testing"

func TestLSN_HasTheFormOfPostgreSQL(t *testing.T) {
	for text, position := range map[string]LSN{
		"0/0":               0,
		"0/1":               1,
		"16/B374D848":       0x16_B374_D848,
		"FFFFFFFF/FFFFFFFF": 0xFFFF_FFFF_FFFF_FFFF,
		"1/0":               1 << 32,
	} {
		if read, err := ParseLSN(text); err != nil || read != position {
			t.Errorf("ParseLSN(%q) = %d, %v", text, uint64(read), err)
		}
		if position.String() != text {
			t.Errorf("%d prints as %s, want %s", uint64(position), position, text)
		}
		var scanned LSN
		if err := scanned.Scan([]byte(text)); err != nil || scanned != position {
			t.Errorf("Scan(%q) = %s, %v", text, scanned, err)
		}
		if value, err := position.Value(); err != nil || value != text {
			t.Errorf("Value of %s = %v, %v", text, value, err)
		}
	}
	if lower, err := ParseLSN("16/b374d848"); err != nil || lower != 0x16_B374_D848 {
		t.Errorf("lower case: %s, %v", lower, err)
	}
}

func TestLSN_NothingElseIsRead(t *testing.T) {
	for _, text := range []string{"", "/", "0", "0/", "/0", "1/2/3", "0x1/2", "-1/2", "+1/2", "1_0/2", "1/ 2", " 1/2", "123456789/0", "0/123456789", "G/0"} {
		if read, err := ParseLSN(text); err == nil {
			t.Errorf("ParseLSN(%q) = %s", text, read)
		}
		kept := LSN(7)
		if err := kept.Scan(text); err == nil || kept != 7 {
			t.Errorf("Scan(%q): %s, %v", text, kept, err)
		}
	}
	for _, value := range []any{nil, int64(1)} {
		var l LSN
		if l.Scan(value) == nil {
			t.Errorf("Scan(%v) is %s", value, l)
		}
	}
}
