package write;

import java.net.URI;

/** The address of libpq as JDBC has it: user and password are parameters there. */
final class Jdbc {
    private Jdbc() {}

    static String url(String libpq) {
        URI uri = URI.create(libpq);
        String[] user = (uri.getRawUserInfo() == null ? "postgres" : uri.getRawUserInfo()).split(":", 2);
        String query = uri.getRawQuery() == null ? "" : "&" + uri.getRawQuery();
        String password = user.length > 1 ? "&password=" + user[1] : "";
        return "jdbc:postgresql://" + uri.getRawAuthority().replaceFirst(".*@", "") + uri.getRawPath() + "?user=" + user[0] + password + query;
    }
}
