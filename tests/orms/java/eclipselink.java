// EclipseLink: a key that is taken first, and what IDENTITY does with the default and with new_keys.
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.DriverManager;
import java.util.HashMap;
import java.util.Map;
import javax.persistence.Entity;
import javax.persistence.EntityManager;
import javax.persistence.EntityManagerFactory;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.Persistence;
import javax.persistence.Table;

@Entity
@Table(name = "books")
class IdentityBook {
    @Id
    @GeneratedValue(strategy = GenerationType.IDENTITY)
    Long id;

    String title;
}

class EclipselinkTest {
    static final String URL = String.format("jdbc:postgresql://%s:%s/%s", System.getenv("PGHOST"), System.getenv("PGPORT"), System.getenv("PGDATABASE"));

    static void same(Object got, Object expected, String what) {
        if (!got.equals(expected)) throw new AssertionError(what + ": got " + got + ", expected " + expected);
        System.out.println("  " + what + ": " + got);
    }

    static String ask(String query) throws Exception {
        try (var server = DriverManager.getConnection(URL, System.getenv("PGUSER"), ""); var it = server.createStatement()) {
            if (!it.execute(query)) return "";
            it.getResultSet().next();
            return it.getResultSet().getString(1);
        }
    }

    static EntityManagerFactory factory(String unit, String ddl) {
        Map<String, String> properties = new HashMap<>();
        properties.put("javax.persistence.jdbc.driver", "org.postgresql.Driver");
        properties.put("javax.persistence.jdbc.url", URL);
        properties.put("javax.persistence.jdbc.user", System.getenv("PGUSER"));
        properties.put("eclipselink.session.customizer", "Ids$Customizer");
        properties.put("eclipselink.ddl-generation", ddl);
        properties.put("eclipselink.weaving", "false");
        return Persistence.createEntityManagerFactory(unit, properties);
    }

    /** Saves an object, and returns the error if there is one. */
    static String save(EntityManagerFactory factory, Object object) {
        EntityManager manager = factory.createEntityManager();
        try {
            manager.getTransaction().begin();
            manager.persist(object);
            manager.getTransaction().commit();
            return "";
        } catch (RuntimeException error) {
            return error.toString();
        } finally {
            manager.close();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String unit = "<persistence-unit name='%s' transaction-type='RESOURCE_LOCAL'><provider>org.eclipse.persistence.jpa.PersistenceProvider</provider>"
            + "<class>%s</class><exclude-unlisted-classes>true</exclude-unlisted-classes></persistence-unit>";
        Path file = Path.of(EclipselinkTest.class.getResource("EclipselinkTest.class").toURI()).resolveSibling("META-INF/persistence.xml");
        Files.createDirectories(file.getParent());
        Files.writeString(file, "<persistence xmlns='http://xmlns.jcp.org/xml/ns/persistence' version='2.1'>"
            + String.format(unit, "recipe", "Book") + String.format(unit, "identity", "IdentityBook") + "</persistence>");

        ask("CREATE TABLE books (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), title text)");
        EntityManagerFactory recipe = factory("recipe", "none");
        Book book = new Book();
        book.title = "one";
        same(save(recipe, book), "", "the recipe");
        same(ask("SELECT (snowflake_decode(id)).worker_id || ' ' || id FROM books"), "7 " + book.id, "its row");
        recipe.close();
        EntityManagerFactory identity = factory("identity", "none");
        String error = save(identity, new IdentityBook());
        same(error.contains("lastval is not yet defined"), true, "IDENTITY asks lastval()");
        ask("ALTER TABLE books ADD number serial");
        IdentityBook wrong = new IdentityBook();
        same(save(identity, wrong), "", "IDENTITY where the row gets a number too");
        same(wrong.id, 2L, "the number of the row is the ID of the object");
        identity.close();

        ask("DROP TABLE books; ALTER DATABASE eclipselink SET snowflake_id.new_keys = on");
        identity = factory("identity", "create-tables");
        same(save(identity, new IdentityBook()), "", "IDENTITY in a table that EclipseLink makes");
        identity.close();
        same(ask("SELECT detail FROM snowflake_status() WHERE item = 'keys'").contains("public.books.id"), true, "which status names");
        recipe = factory("recipe", "drop-and-create-tables");
        same(save(recipe, new Book()), "", "the recipe in a table that EclipseLink makes");
        same(ask("SELECT format('%s %s', atttypid::regtype, atthasdef) FROM pg_attribute WHERE attrelid = 'books'::regclass AND attname = 'id'"), "bigint f", "its key, and whether it has a default");
    }
}
