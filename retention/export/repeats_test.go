package export

import "testing"

// Rows that are equal to those of an earlier file in all columns are others, where the table allows it.
func TestStore_WritesRowsAgainThatEqualEarlierOnes(t *testing.T) {
	b, _ := bucket(t, nil)
	for kind, s := range map[string]Store{"folder": folder(t), "bucket": b} {
		t.Run(kind, func(t *testing.T) {
			names := make(map[string]bool)
			for range 2 {
				header := &Header{Table: "public.outbox", Columns: []Column{{"id", "text"}}, Repeats: true}
				name, size, err := s.Write(t.Context(), slice, header, func(row func([]Value) error) error { return row([]Value{text("a")}) })
				if err != nil || size == 0 {
					t.Fatalf("%d bytes, %v", size, err)
				}
				names[name] = true
			}
			if len(names) != 2 {
				t.Errorf("two equal rows are in %v alone", names)
			}
		})
	}
}
