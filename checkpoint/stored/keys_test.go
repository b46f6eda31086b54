package stored

import "testing"

// What is stored under these names is looked for under them by later versions.
func TestNames_StayAsTheyAre(t *testing.T) {
	for name, tt := range map[string]struct{ got, want string }{
		"a slot's key":          {Key("7301", "relay"), "7301/relay"},
		"a promise's key":       {PromiseKey("host-1", "7301", "relay"), "intent of host-1 for 7301/relay"},
		"the end of it":         {PromiseSuffix("7301", "relay"), " for 7301/relay"},
		"the transactional id":  {TransactionalID("7301", "relay"), "cdc-relay-7301-relay"},
		"what lies before":      {BeforeSlotKey("7301", "relay", 16384), "before the slot of table 16384: 7301/relay"},
		"which tables":          {StreamedKey("7301", "relay"), "tables streamed: 7301/relay"},
		"the letters' topic":    {LettersTopicKey("7301", "relay"), "dead letters of 7301/relay"},
		"a backfill's progress": {BackfillKey("7301", "relay"), "backfill of 7301/relay"},
		"a backfill's stream":   {BackfillStreamKey("7301", "relay"), "backfill stream of 7301/relay"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %q, want %q", name, tt.got, tt.want)
		}
	}
}

func TestLettersTopicSlot_IsThatOfTheKey(t *testing.T) {
	if slot, ok := LettersTopicSlot("7", LettersTopicKey("7", "relay")); slot != "relay" || !ok {
		t.Errorf("%q, %t", slot, ok)
	}
	for _, key := range []string{LettersTopicKey("8", "relay"), BeforeSlotKey("7", "relay", 16384), PromiseKey("a", "7", "relay")} {
		if slot, ok := LettersTopicSlot("7", key); ok {
			t.Errorf("%q is that of slot %q", key, slot)
		}
	}
}
