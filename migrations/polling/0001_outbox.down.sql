-- Deletes the events that the table still holds.
DROP TABLE :"schema".:"table";
