module github.com/cdc-relay/cdc-relay/outbox

go 1.25.0
