
-- Lets it look at rows as well, as setup does to count those that are there already.
GRANT USAGE ON SCHEMA :schemas TO :"role";
GRANT SELECT ON TABLE :tables TO :"role";
