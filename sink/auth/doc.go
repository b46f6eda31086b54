// Package auth secures connections to brokers: TLS, and SASL with passwords, OAuth tokens
// or AWS credentials.
//
// Settings and secrets are functions that are called for each connection, so what is
// renewed applies without a restart. Its errors say who can correct them. It knows the contract
// of sink and no other stage; broker connects with it, and config checks with it.
package auth
