// Hibernate: a key that the database makes, with the default and by new_keys, and a key of a sequence.
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashMap;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.SequenceGenerator;
import javax.persistence.Table;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

@Entity
@Table(name = "books")
class BookOfSequence {
    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "books")
    @SequenceGenerator(name = "books", sequenceName = "books_id_seq")
    Long id;

    String title;
}

class HibernateTest {
    static final String URL = String.format("jdbc:postgresql://%s:%s/%s", System.getenv("PGHOST"), System.getenv("PGPORT"), System.getenv("PGDATABASE"));
    static Connection server;

    static SessionFactory factory(Class<?> entity, String ddl) {
        return new Configuration().addAnnotatedClass(entity)
            .setProperty("hibernate.dialect", "org.hibernate.dialect.PostgreSQLDialect")
            .setProperty("hibernate.connection.driver_class", "org.postgresql.Driver")
            .setProperty("hibernate.connection.url", URL)
            .setProperty("hibernate.connection.username", System.getenv("PGUSER"))
            .setProperty("hibernate.hbm2ddl.auto", ddl).buildSessionFactory();
    }

    static void same(Object got, Object expected, String what) {
        if (!got.equals(expected)) throw new AssertionError(what + ": got " + got + ", expected " + expected);
        System.out.println("  " + what + ": " + got);
    }

    static void run(String statement) throws SQLException {
        try (Statement it = server.createStatement()) { it.execute(statement); }
    }

    static String ask(String query) throws SQLException {
        try (Statement it = server.createStatement(); ResultSet rows = it.executeQuery(query)) {
            rows.next();
            return rows.getString(1);
        }
    }

    static final String DEFAULT = "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'books'::regclass";

    /** Saves 100 objects, and checks that each knows the ID of its row. */
    static void save(SessionFactory factory, String what) throws SQLException {
        Map<String, Long> ids = new HashMap<>();
        Session session = factory.openSession();
        session.beginTransaction();
        for (int n = 0; n < 100; n++) {
            Book book = new Book();
            book.title = String.valueOf(n);
            session.save(book);
            ids.put(book.title, book.id);
        }
        session.getTransaction().commit();
        session.close();
        Map<String, Long> stored = new HashMap<>();
        try (Statement it = server.createStatement();
             ResultSet rows = it.executeQuery("SELECT title, id FROM books WHERE (snowflake_decode(id)).worker_id = 7")) {
            while (rows.next()) stored.put(rows.getString(1), rows.getLong(2));
        }
        same(stored.size(), 100, what + ": rows with IDs");
        same(ids.equals(stored), true, what + ": right IDs");
        factory.close();
    }

    public static void main(String[] arguments) throws SQLException {
        Logger.getLogger("org.hibernate").setLevel(Level.WARNING);
        server = DriverManager.getConnection(URL, System.getenv("PGUSER"), "");
        run("CREATE TABLE books (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), title text)");
        save(factory(Book.class, "validate"), "the default");

        // A sequence that exists is asked, whatever the default is; one that does not is an error.
        for (boolean exists : new boolean[] {false, true}) {
            run("TRUNCATE books; DROP SEQUENCE IF EXISTS books_id_seq");
            if (exists) run("CREATE SEQUENCE books_id_seq");
            SessionFactory factory = factory(BookOfSequence.class, "none");
            Session session = factory.openSession();
            session.beginTransaction();
            String outcome = "saved";
            try {
                session.save(new BookOfSequence());
                session.getTransaction().commit();
            } catch (RuntimeException error) {
                outcome = error.getCause().getMessage().lines().findFirst().get();
            }
            session.close();
            factory.close();
            same(outcome, exists ? "saved" : "ERROR: relation \"books_id_seq\" does not exist", "SEQUENCE");
        }
        same(Long.parseLong(ask("SELECT max(id) FROM books")) < 100, true, "SEQUENCE inserts small numbers");

        run("DROP TABLE books; DROP SEQUENCE books_id_seq");
        factory(Book.class, "create").close();
        same(ask(DEFAULT), "nextval('books_id_seq'::regclass)", "hbm2ddl");
        run("DROP TABLE books; ALTER DATABASE hibernate SET snowflake_id.new_keys = on");
        SessionFactory factory = factory(Book.class, "create");
        same(ask(DEFAULT), "snowflake_nextval()", "hbm2ddl, with new_keys");
        save(factory, "new_keys");
        server.close();
    }
}
